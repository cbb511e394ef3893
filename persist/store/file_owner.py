"""Whose file a store's database is, where it is the own file of one run, instance or workspace."""

from persist.db.transactions.runtime import Runtime


class FileOwner:
    """What a store says of the owner of its file."""

    runtime: Runtime

    @property
    def run_id(self) -> str | None:
        """The program's run whose own file this is, or None."""
        return self.runtime.scopes.get("run_id")

    @property
    def instance_id(self) -> str | None:
        """The instance whose own file this is, or None."""
        return self.runtime.scopes.get("instance_id")

    @property
    def workspace_id(self) -> str | None:
        """The workspace whose own file this is, or None."""
        return self.runtime.scopes.get("workspace_id")
