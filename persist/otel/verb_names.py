"""What a verb is called in spans: `chat.messages.append`, as a caller writes it after `tx.`."""

from functools import cache

from persist.db.transactions.repository import Repository, on_demand
from persist.domains import Domains


@cache
def verb_name(module: str, qualified: str) -> str:
    """Return domain, aggregate and verb of a function, from its module and its qualified name.

    What is no verb of a domain, as a look at the event log, keeps its own name.
    """
    parts = module.split(".")
    domain = parts[1] if len(parts) > 1 else ""
    if not domain:
        return qualified
    owner, _, verb = qualified.rpartition(".")
    aggregate = _aggregates(domain).get(owner)
    return ".".join(part for part in (domain, aggregate, verb) if part)


@cache
def _aggregates(domain: str) -> dict[str, str]:
    """By the names of the classes of the domain's repositories, bases included: the name of the attribute."""
    found: dict[str, str] = {}
    attribute = vars(Domains).get(domain)
    if not isinstance(attribute, on_demand):
        return found
    kind = attribute.kind
    makers = {name: one.kind for name in dir(kind) if isinstance(one := getattr(kind, name), on_demand)}
    made = {} if issubclass(kind, Repository) else vars(kind(None))  # some domains make their repositories at once
    kinds = makers | {name: type(one) for name, one in made.items() if isinstance(one, Repository)}
    for name, repository in kinds.items():
        found |= {base.__name__: name for base in repository.__mro__ if base.__name__ not in found}
    return found
