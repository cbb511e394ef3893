"""Writes what a runtime dumps of its own objects, for the tests beside this file; run by hand, once for each version of it:

    pip install lionagi==0.36.0 && python tests/contract/conversations/make_runtime_vectors.py

A session with a branch of every kind of message, a copy of that branch, plain messages to be sent, and a progression, each as
`to_dict(mode="db")` gives it; what describes models is left out, since it is of no table.
"""

import json
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).with_name("runtime_vectors.json")


def dumped(thing: Any, *without: str) -> dict[str, Any]:
    """The published form, as JSON has it."""
    return {name: value for name, value in json.loads(json.dumps(thing.to_dict(mode="db"))).items() if name not in without}


def vectors() -> dict[str, Any]:
    """The objects of the version that is installed."""
    runtime, said = import_module("lionagi"), import_module("lionagi.protocols.messages")
    branch = runtime.Branch(system="Be brief.", name="main", user="anna")
    to, by = {"sender": "user", "recipient": branch.id}, {"sender": branch.id, "recipient": "user"}
    call = {"function": "look", "arguments": {"at": "map", "zoom": 2.5}}
    request = said.ActionRequest(content=call, **by)
    result = {**call, "output": [1, None, "x"], "action_request_id": str(request.id)}
    for one in (
        said.Instruction(content={"instruction": "Where is the Louvre?", "context": [{"city": "Paris"}]}, **to),
        said.AssistantResponse(content={"assistant_response": "In Paris."}, embedding=[0.5, -1.25], **by),
        request,
        said.ActionResponse(content=result, **to),
    ):
        branch.msgs.messages.include(one)
    session = runtime.Session(name="trip")
    session.include_branches(branch)
    copy = branch.clone()
    session.include_branches(copy)
    progression = import_module("lionagi.protocols.generic.progression").Progression
    seen = progression(order=[one.id for one in branch.msgs.messages], name="seen", metadata={"page": 3})
    plain = [("hi", copy.id, "plans"), ({"a": [1]}, None, None), (0, copy.id, None)]
    sent = [said.Message(content=what, sender=branch.id, recipient=whom, channel=where) for what, whom, where in plain]
    return {
        "session": dumped(session, "branches"),
        "branches": [dumped(one, "chat_model", "parse_model") for one in (branch, copy)],
        "progression": dumped(seen),
        "sent": [dumped(one) for one in sent],
    }


def main() -> None:
    """Add the installed version's to those that are there."""
    found = json.loads(VECTORS.read_text()) if VECTORS.exists() else {}
    found[version("lionagi")] = vectors()
    VECTORS.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":"), sort_keys=False) + "\n")


if __name__ == "__main__":
    main()
