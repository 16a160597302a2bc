"""Checks a document against a JSON schema, and prints what is wrong with it.

    schemas.py SCHEMA DOCUMENT
"""

import json
import sys

from jsonschema import Draft202012Validator


def main() -> None:
    path, document = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        schema = json.load(file)
    Draft202012Validator.check_schema(schema)
    errors = Draft202012Validator(schema).iter_errors(json.loads(document))
    json.dump([f"{error.json_path}: {error.message}" for error in errors], sys.stdout)


if __name__ == "__main__":
    main()
