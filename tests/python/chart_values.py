"""Checks the values of a chart against its schema, as Helm does; prints true or false.

    chart_values.py SCHEMA VALUES.yaml CHANGE

CHANGE is JSON whose keys take the place of those in VALUES.
"""

import json
import sys

import jsonschema
import yaml


def main() -> None:
    schema, values, change = sys.argv[1:]
    with open(schema, encoding="utf-8") as file:
        rules = json.load(file)
    with open(values, encoding="utf-8") as file:
        given = yaml.safe_load(file) | json.loads(change)
    jsonschema.Draft7Validator.check_schema(rules)
    json.dump(jsonschema.Draft7Validator(rules).is_valid(given), sys.stdout)


if __name__ == "__main__":
    main()
