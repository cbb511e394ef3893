"""`persist grants`: the SQL that gives roles of Postgres their rights."""

import click

from persist.cli.output import say
from persist.db.dialects.roles import RoleKind
from persist.schema.grants import grant_script, tenant_removal_script, tenant_script


@click.command(short_help="Print the SQL that gives a role its rights; no database.")
@click.option(
    "--role",
    "kind",
    type=click.Choice([str(kind) for kind in RoleKind]),
    help="What the role is for; all but subagent if left out.",
)
@click.option("--name", metavar="NAME", help="The role's name; persist_app and so on if left out.")
@click.option("--tenant", metavar="NAME", help="A role that sees its own rows alone, in a schema that tenants share.")
@click.option("--remove", is_flag=True, help="Delete the rows of --tenant, whose role may be gone, instead.")
@click.option("--owner", metavar="NAME", help="The role that runs `persist upgrade`; persist_owner if left out.")
@click.option("--schema", default="persist", show_default=True, metavar="NAME", help="The schema of the tables.")
def grants(kind: str | None, name: str | None, tenant: str | None, remove: bool, owner: str | None, schema: str) -> None:
    """Print the SQL that makes roles of Postgres and gives them their rights, for psql. Running it again is harmless.

    Run the owner's part before the first upgrade and the others after it, that of subagents after each upgrade. The first line
    lets psql end with an error where a statement fails; another program than psql leaves it out. The owner's part also hands
    over what another role made in the schema. What roles may do is in docs/operations.md.
    """
    if tenant is not None:
        if kind is not None or name is not None:
            raise click.UsageError("--tenant is a role of its own: leave out --role and --name.")
        script = tenant_removal_script(tenant, schema=schema) if remove else tenant_script(tenant, owner=owner, schema=schema)
        _print(script)
        return
    if remove:
        raise click.UsageError("--remove needs --tenant.")
    if name is not None and kind is None:
        raise click.UsageError("--name needs --role.")
    kinds = [one for one in RoleKind if one is not RoleKind.SUBAGENT] if kind is None else [RoleKind(kind)]
    _print("\n".join(grant_script(one, role=name, owner=owner, schema=schema) for one in kinds))


def _print(script: str) -> None:
    """Print a script for psql, which goes on after a statement that fails, and exits with 0, unless it is told to stop."""
    say("\\set ON_ERROR_STOP on\n" + script.rstrip("\n"))
