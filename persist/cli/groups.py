"""A group of commands, which says what was meant with a name that it does not have, or with an option before its command."""

from difflib import get_close_matches

import click

from persist.cli.failures import redacted


class Group(click.Group):
    """For `cls=` of every group: `persist run` asks whether `runs` was meant, `persist --json ls` about `persist ls --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # click takes them out one by one
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            at = next((at for at, word in enumerate(given) if word.startswith(error.option_name)), len(given))
            place = next((at for at, word in enumerate(given) if word in self.list_commands(ctx)), -1)
            if place < at:
                raise
            meant = redacted(" ".join([ctx.command_path, *given[:at], *given[place:], *given[at:place]]))
            reason = f"No such option {error.option_name!r} before a command. Did you mean `{meant}`?"
            raise click.UsageError(reason, ctx) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            close = get_close_matches(name, self.list_commands(ctx), 3)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)
