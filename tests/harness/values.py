"""Answers as values: dataclasses, made of the JSON that the programs print."""
import dataclasses
import json


def _plain(name):
    return name.replace("_", "").lower()


def hexadecimal():
    """A field that is printed in hexadecimal, and is a number here."""
    return dataclasses.field(metadata={"read": lambda text: int(text, 16)})


def value(kind, said):
    """An object of the dataclass @kind, of a JSON object: LeaseId, leaseId and lease_id are
    lease_id. What the dataclass does not have is left out; what the answer lacks is a KeyError,
    unless the field has a default."""
    said = {_plain(name): given for name, given in said.items()}
    got = {}
    for field in dataclasses.fields(kind):
        if _plain(field.name) in said:
            read = field.metadata.get("read", lambda given: given)
            got[field.name] = read(said[_plain(field.name)])
        elif field.default is dataclasses.MISSING:
            raise KeyError(f"{field.name} is not in {said}")
    return kind(**got)


def json_lines(lines):
    return [json.loads(line) for line in lines if line]
