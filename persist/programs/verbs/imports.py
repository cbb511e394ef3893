"""Imports: programs that are used under an alias; their values are bound as `alias.name`."""

from sqlalchemy import select

from persist.db.expressions.conditional_insert import insert_where
from persist.db.expressions.upsert import overwriting
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.json import Json
from persist.errors import NotFound
from persist.programs import names
from persist.programs.models import imports
from persist.programs.schemas import Import
from persist.programs.storage.run_rows import IS_THERE, RUN_EXISTS, check_found, this_second

List = list
_I = imports.c
_IMPORT = ScopedValues(Import, imports, "run_id")
_OF_RUN = select(*_IMPORT.columns).where(_I.run_id == param("run")).order_by(_I.alias)
_ALL = Statement(_OF_RUN)
_GET = Statement(_OF_RUN.where(_I.alias == param("row_alias")))
_PUT = Statement(overwriting(insert_where(imports, IS_THERE), "run_id", "alias"))


class Imports(Repository[F]):
    """`tx.programs.imports`."""

    guarded = True

    @writes
    def add(self, run_id: str, alias: str, source_url: str, *, inputs_schema: Json = None, outputs_schema: Json = None) -> Import:
        """Register a program under an alias (without a dot), or register it anew. Raises NotFound for the run."""
        work = self._work
        name, url = names.check_alias(alias), work.label("source_url", source_url)
        work.json("inputs_schema", inputs_schema)
        work.json("outputs_schema", outputs_schema)
        stored = stored_scope(work, "run_id", run_id)
        with work.batch(last=True) as batch:
            run = batch.row(RUN_EXISTS, row_id=run_id)
            batch.run(
                _PUT,
                row_id=run_id,
                run_id=stored,
                alias=name,
                source_url=url,
                fetched_at=this_second(work),
                inputs_schema=inputs_schema,
                outputs_schema=outputs_schema,
            )
            written = batch.row(_GET, run=stored, row_alias=name)
        check_found(run, run_id)
        assert written.result is not None, "it was written a moment ago"
        return _IMPORT.public(self._work, written.result)

    @reads
    def get(self, run_id: str, alias: str) -> Import:
        """The import. Raises NotFound."""
        row = self._work.row(_GET, run=stored_scope(self._work, "run_id", run_id), row_alias=self._work.label("alias", alias))
        if row is None:
            raise NotFound("import", alias)
        return _IMPORT.public(self._work, row)

    @reads
    def list(self, run_id: str) -> List[Import]:
        """Every import of the run, by alias."""
        return [_IMPORT.public(self._work, row) for row in self._work.rows(_ALL, run=stored_scope(self._work, "run_id", run_id))]
