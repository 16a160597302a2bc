"""What Schemathesis makes up, in the normal form NFC: a schema has no word for that rule of names."""

import unicodedata

import schemathesis


def normal(value):
    """A value with all of its texts in that form."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, dict):
        return {key: normal(part) for key, part in value.items()}
    if isinstance(value, list):
        return [normal(part) for part in value]
    return value


@schemathesis.hook
def map_query(context, query):
    return normal(query)


@schemathesis.hook
def map_body(context, body):
    return normal(body)
