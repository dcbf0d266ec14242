"""The audit log, of which the database refuses changes: only the place in the chain is added, once, and only retention deletes."""

from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models

APPEND_ONLY = """
    CREATE FUNCTION access_app_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF current_setting('tracesite.audit_retention', true) = 'on' AND OLD.sequence IS NOT NULL THEN
                RETURN OLD;
            END IF;
        ELSIF OLD.sequence IS NULL
            AND to_jsonb(OLD) - '{sequence,previous_hash,hash}'::text[] = to_jsonb(NEW) - '{sequence,previous_hash,hash}'::text[]
        THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'Entries of the audit log are neither changed nor deleted.';
    END
    $$;
    CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON access_app_auditentry
        FOR EACH ROW EXECUTE FUNCTION access_app_audit_append_only();
    """
REVERSE = """
    DROP TRIGGER append_only ON access_app_auditentry;
    DROP FUNCTION access_app_audit_append_only();
    """


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("access_app", "0005_key_limits"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("time", models.DateTimeField(verbose_name="time")),
                (
                    "actor_kind",
                    models.CharField(
                        choices=[("user", "user"), ("key", "API key"), ("command", "command"), ("system", "system")],
                        max_length=10,
                        verbose_name="kind of actor",
                    ),
                ),
                ("actor_name", models.CharField(max_length=255, verbose_name="actor")),
                ("actor_id", models.CharField(blank=True, max_length=64, verbose_name="id of the actor")),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("list", "list"),
                            ("read", "read"),
                            ("search", "search"),
                            ("export", "export"),
                            ("create", "create"),
                            ("change", "change"),
                            ("delete", "delete"),
                            ("restore", "restore"),
                            ("purge", "purge"),
                            ("import", "import"),
                            ("login", "login"),
                            ("logout", "logout"),
                            ("key_use", "use of a key"),
                            ("key_create", "creation of a key"),
                            ("key_rotate", "rotation of a key"),
                            ("key_revoke", "revocation of a key"),
                            ("role_grant", "grant of a role"),
                            ("role_revoke", "revocation of a role"),
                            ("audit_purge", "purge of the audit log"),
                        ],
                        max_length=16,
                        verbose_name="action",
                    ),
                ),
                ("object_type", models.CharField(blank=True, max_length=64, verbose_name="type of object")),
                ("object_id", models.CharField(blank=True, max_length=255, verbose_name="id of the object")),
                ("object_name", models.CharField(blank=True, max_length=255, verbose_name="object")),
                ("address", models.CharField(blank=True, max_length=64, verbose_name="address")),
                ("request_id", models.CharField(blank=True, max_length=128, verbose_name="request id")),
                (
                    "result",
                    models.CharField(
                        choices=[("allowed", "allowed"), ("refused", "refused"), ("failed", "failed")],
                        max_length=8,
                        verbose_name="result",
                    ),
                ),
                ("detail", models.JSONField(default=dict, verbose_name="detail")),
                ("sequence", models.BigIntegerField(editable=False, null=True, verbose_name="number in the chain")),
                (
                    "previous_hash",
                    models.CharField(
                        editable=False,
                        max_length=64,
                        blank=True,
                        db_default="",
                        default="",
                        verbose_name="previous hash",
                    ),
                ),
                (
                    "hash",
                    models.CharField(
                        editable=False, max_length=64, blank=True, db_default="", default="", verbose_name="hash"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="access_app.project",
                        verbose_name="project",
                    ),
                ),
            ],
            options={
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit log",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["project", "-id"], name="audit_of_project"),
                    models.Index(condition=models.Q(("sequence", None)), fields=["id"], name="audit_unchained"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "sequence"), name="audit_sequence_of_project"),
                    models.UniqueConstraint(
                        condition=models.Q(("project", None)),
                        fields=("sequence",),
                        name="audit_sequence_without_project",
                    ),
                ],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, REVERSE),
    ]
