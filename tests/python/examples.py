"""Checks each example of an OpenAPI document against its schema, and prints how many there are and what is wrong.

    examples.py DOCUMENT
"""

import json
import sys

from jsonschema import Draft202012Validator


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    wrong = []
    count = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in (content for body in bodies for content in body.get("content", {}).values()):
                if "example" not in content:
                    continue
                count += 1
                # What the schema refers to is in the document.
                schema = {**content["schema"], "components": document["components"]}
                found = Draft202012Validator(schema).iter_errors(content["example"])
                wrong += [f"{method} {path}: {error.json_path}: {error.message}" for error in found]
    json.dump({"count": count, "wrong": wrong}, sys.stdout)


if __name__ == "__main__":
    main()
