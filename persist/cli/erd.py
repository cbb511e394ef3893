"""`persist erd`: the tables as a diagram."""

import click

from persist.cli.output import say
from persist.maintenance.diagram import erd as diagram


@click.command(short_help="Print the tables as a Mermaid diagram; no database.")
@click.option("--domain", metavar="NAME", help="The tables of one domain alone, such as chat.")
def erd(domain: str | None) -> None:
    """Print the tables and who refers to whom as a Mermaid diagram, for a page of docs. No database is needed."""
    say(diagram(domain=domain).rstrip("\n"))
