"""What `doctor` says of transcripts that another program wrote to, and mends."""

from persist import Store
from persist.maintenance import doctor
from tests.contract.conftest import Raw


def test_a_length_behind_its_entries_is_counted_anew(database_url: str) -> None:
    with Store.open(database_url) as store:
        raw = Raw(database_url)
        with store.begin() as tx:
            tx.transcripts.entries.append("p", "s", [{"type": "a"}, {"type": "b"}], subpath="part")
        raw.rows("UPDATE transcript_sessions SET length = 1")
        (finding,) = [found for found in doctor(store, fix=True) if found.code == "transcript_length"]
        assert finding.fixed
        assert "entry at 1" in finding.message
        assert [found for found in doctor(store) if found.code == "transcript_length"] == []
        with store.begin() as tx:
            tx.transcripts.entries.append("p", "s", [{"type": "c"}], subpath="part")
            assert [entry["type"] for entry in tx.transcripts.entries.list("p", "s", subpath="part")] == ["a", "b", "c"]
        raw.rows("UPDATE transcript_entries SET entry = 'no json' WHERE position = 0")
        raw.rows("UPDATE transcript_sessions SET summary = '{' ")
        assert {found.code for found in doctor(store)} == {"unreadable"}
        raw.close()
