"""Checks Kubernetes manifests against the schemas of a version, strictly, and prints them as JSON.

    manifests.py VERSION FILE
"""

import json
import sys

import kubernetes_validate
import yaml


def main() -> None:
    version, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        documents = [document for document in yaml.safe_load_all(file) if document]
    for document in documents:
        # Of an operator, which Kubernetes' own schemas do not know.
        if document["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        # Strictly: a field that the version does not know is an error.
        kubernetes_validate.validate(document, version, strict=True)
    json.dump(documents, sys.stdout)


if __name__ == "__main__":
    main()
