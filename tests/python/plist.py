"""Prints a property list of macOS as JSON.

    plist.py FILE
"""

import json
import plistlib
import sys


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        json.dump(plistlib.load(file), sys.stdout)


if __name__ == "__main__":
    main()
