"""The archive: whole months of traces as Parquet files in a folder or object store. Needs the extra `archive`."""
