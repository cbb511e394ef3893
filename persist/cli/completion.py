"""`persist completion`: what makes a shell complete the names of commands and options."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from persist.cli.output import say

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print a script for the shell's tab key; no database.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets SHELL complete the names of commands and options: bash 4.4 or newer, zsh or fish.

    For bash `eval "$(persist completion bash)"` in ~/.bashrc, for zsh the same in ~/.zshrc, for fish
    `persist completion fish > ~/.config/fish/completions/persist.fish`.
    """
    found = get_completion_class(shell)
    assert found is not None, "click has each of them"
    script = found(ctx.find_root().command, {}, "persist", "_PERSIST_COMPLETE")
    say(ShellComplete.source(script).strip("\n"))  # its own method first starts a bash, to look at its version
