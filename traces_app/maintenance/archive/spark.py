"""Run SQL over an archive with Apache Spark 3.4 or newer: spark-submit spark.py DIR|URL NAME|FILE [--to DIR|URL]

NAME is one of the queries beside this file (tools, models, errors), FILE another text of SQL. The views are those of
`query_archive`: a view for each dataset that has rows, of the files that the manifests name, with each row once. The result is
printed as JSON, an object a line, or written to `--to` as Parquet.

The file needs pyspark alone, so that it can be submitted to a cluster as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANALYTICS = Path(__file__).parent / "analytics"
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Null values, and times as DuckDB writes them: by itself Spark leaves out the microseconds."""


class Newest(NamedTuple):
    """The columns by which the newest of several rows is found."""

    key: str
    """The column that rows have in common."""
    by: str


REPEATED = {
    "sessions": Newest("id", "updated_at"),
    "scores": Newest("id", "updated_at"),
    "spans": Newest("id", "id"),
    "tools": Newest("id", "id"),
    "snapshots": Newest("id", "id"),
    "snapshot_parts": Newest("id", "id"),
    "snapshot_sums": Newest("session_id", "generation"),
}
"""Datasets whose rows are in each period in which their session or trace has messages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", metavar="DIR|URL", help="the folder of the archive")
    parser.add_argument("query", metavar="NAME|FILE", help="tools, models, errors, or a file with SQL")
    parser.add_argument("--to", metavar="DIR|URL", help="write the result here, as Parquet")
    options = parser.parse_args()
    shipped = ANALYTICS / f"{options.query}.sql"
    sql = (shipped if shipped.exists() else Path(options.query)).read_text()

    # Only spark-submit has it.
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import struct, to_json

    spark = SparkSession.builder.appName("tracesite").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    # A period such as 2026-01 stays a text.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    make_views(spark, options.archive.rstrip("/"))
    result = spark.sql(sql)
    if options.to:
        result.write.parquet(options.to)
    else:
        for (line,) in result.select(to_json(struct("*"), _JSON)).toLocalIterator():
            sys.stdout.write(f"{line}\n")


def make_views(spark: SparkSession, archive: str) -> None:
    """Make a view of each dataset that has rows."""
    paths: dict[str, list[str]] = defaultdict(list)
    for row in spark.read.text(f"{archive}/manifests/*/*.json", wholetext=True).collect():
        for name, file in json.loads(row.value)["tables"].items():
            paths[name].append(f"{archive}/{file['path']}")
    for name, files in paths.items():
        # Columns that older files lack are NULL.
        rows = spark.read.option("basePath", f"{archive}/{name}").option("mergeSchema", "true").parquet(*files)
        if name in REPEATED:
            rows = newest(rows, REPEATED[name])
        rows.createOrReplaceTempView(name)


def newest(rows: DataFrame, of: Newest) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql.functions import col, row_number

    order = Window.partitionBy("project", of.key).orderBy(col(of.by).desc(), col("period").desc())
    return rows.withColumn("place", row_number().over(order)).where("place = 1").drop("place")


if __name__ == "__main__":
    main()
