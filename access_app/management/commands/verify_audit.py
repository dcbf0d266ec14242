"""Verifies the hash chains of the audit log and keeps anchors of them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from access_app.arguments import project_named
from access_app.audit.chain import chain_name, chains, first_broken_link, head_of
from access_app.command import TracesiteCommand
from access_app.hash_chain import Head
from access_app.models import AuditEntry

logger = logging.getLogger(__name__)


class Command(TracesiteCommand):
    help = (
        "Verify the audit log, and name the first entry of each chain that was changed, moved, added or follows removed "
        "ones. Exit status: 0 intact, 1 a link is broken, 2 invalid arguments."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", metavar="SLUG", help="only this project (default: all chains)")
        parser.add_argument(
            "--anchor-file",
            type=Path,
            metavar="PATH",
            help="JSON file with the newest hash of each chain: compared with the chains, then brought up to date if they are intact",
        )

    def handle(self, *, project: str | None, anchor_file: Path | None, **options: Any) -> None:
        anchors = _read(anchor_file)
        wanted = chains() if project is None else [project_named(project).pk]
        if project is None:
            # A chain of which everything was removed is known by its anchor only.
            wanted += [chain for chain in anchors if chain not in wanted]
        broken = []
        for chain in wanted:
            # Read first: entries that are chained meanwhile come after it.
            head = head_of(chain)
            link = first_broken_link(chain, anchors.get(chain))
            if link is not None:
                broken.append(str(link))
                continue
            anchors[chain] = head
            waiting = AuditEntry.objects.filter(project=chain, sequence=None).count()
            tail = f"; {waiting} newer entries are not chained yet" if waiting else ""
            self.stdout.write(f"{chain_name(chain)}: intact until entry {head.number}, hash {head.digest}{tail}")
            anchor = {"chain": chain_name(chain), "sequence": head.number, "hash": head.digest}
            logger.info("anchor of the audit log", extra=anchor)
        if broken:
            raise CommandError("The audit log is broken.\n" + "\n".join(broken))
        if anchor_file is not None:
            stored = {str(chain or ""): [head.number, head.digest] for chain, head in anchors.items()}
            draft = anchor_file.with_name(f"{anchor_file.name}.new")
            draft.write_text(json.dumps(stored, indent=1) + "\n")
            draft.replace(anchor_file)


def _read(path: Path | None) -> dict[int | None, Head[str]]:
    """Return the anchors of a file, none if it does not exist. Raise CommandError for one that is no anchor file."""
    if path is None or not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text())
        return {(int(chain) if chain else None): Head(int(at), str(digest)) for chain, (at, digest) in stored.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} is not an anchor file. Name one that verify_audit wrote.", returncode=2) from error
