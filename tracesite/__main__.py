"""The command `tracesite`, also `python -m tracesite`: Django's commands with the settings of Tracesite.

manage.py in a clone is the same. Without DATABASE_URL the command starts the embedded PostgreSQL first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db.utils import OperationalError, ProgrammingError

from access_app.program import program
from tracesite.serving import embedded_postgres

_HOME = Path(__file__).resolve().parent.parent
_APPS = ("access_app", "messages_app", "traces_app", "tracesite")
_MAKE_A_DATABASE = ("serve", "restore_backup")
"""Our commands that make an embedded database where there is none. Others would work on an empty one, beside that of the server."""
_NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
"""For settings that need an address to which nothing connects."""


def main() -> None:
    """Run the command in sys.argv. Errors that an operator can correct end it with one sentence, all others with a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tracesite.settings")
    if os.environ.get("DATABASE_DIRECT_URL") and sys.argv[1:2] != ["serve"]:
        # The pooler is for requests. Commands keep settings, locks and snapshots in a session of their own.
        os.environ["DATABASE_URL"] = os.environ.pop("DATABASE_DIRECT_URL")
    if not (_HOME / "manage.py").exists() and not os.environ.get("TRACESITE_DATA_DIR"):
        # An installed package must not write beside its modules.
        user_data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        os.environ["TRACESITE_DATA_DIR"] = str(user_data / "tracesite")
    if sys.stderr.isatty() and (sys.argv[1:2] != ["serve"] or "--demo" in sys.argv):
        # The terminal is for the command's own output; log lines, one for each batch, are for files. Those of requests
        # would push the password and the key of `serve --demo` out of sight.
        os.environ.setdefault("TRACESITE_LOG_LEVEL", "WARNING")
    # `export-cassette` is export_cassette: modules have no hyphens.
    command = [argument if argument.startswith("-") else argument.replace("-", "_") for argument in sys.argv[1:2]]
    try:
        if "DJANGO_AUTO_COMPLETE" in os.environ:
            # A shell asks Django to complete a word.
            os.environ["DATABASE_URL"] = _NOWHERE
        elif _needs_a_database(command) and not os.environ.get("DATABASE_URL") and not embedded_postgres.exists():
            if not {"-h", "--help"} & set(sys.argv):
                sys.exit(
                    f"There is no database in {embedded_postgres.data_dir()} yet. To make one: {program()} serve, or "
                    f"{program()} migrate. If the data of Tracesite is in another directory, name it with TRACESITE_DATA_DIR; "
                    "another database, with DATABASE_URL."
                )
            os.environ["DATABASE_URL"] = _NOWHERE
        else:
            embedded_postgres.ensure()
        execute_from_command_line([program(), *command, *sys.argv[2:]])
        sys.stdout.flush()
    except (embedded_postgres.EmbeddedError, ImproperlyConfigured) as error:
        sys.exit(str(error))
    except OperationalError as error:
        remedy = "" if embedded_postgres.home() else "\nCheck DATABASE_URL: host, port, name, user and password."
        sys.exit(f"The database does not respond: {error}{remedy}")
    except ProgrammingError as error:
        if type(error.__cause__).__name__ != "UndefinedTable":
            raise
        sys.exit(f"The database has unapplied migrations. Run: {program()} migrate")
    except BrokenPipeError:
        # Who reads the output, such as `head`, has enough. Python writes the rest when it ends, which must not fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # 128 + SIGPIPE
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as shells have it


def _needs_a_database(command: list[str]) -> bool:
    """Return whether a command of ours works on data that are there already."""
    files = [_HOME / app / "management" / "commands" / f"{name}.py" for app in _APPS for name in command]
    return any(file.exists() for file in files) and command[0] not in _MAKE_A_DATABASE


if __name__ == "__main__":
    main()
