#!/usr/bin/env python3
"""Writes what an image consists of, as SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/) in JSON, to stdout.

Three sources, none of which is guessed from files: dpkg's list of what is installed, npm's lock of what it put into
`node_modules`, and cargo's tree of what is linked into the supervisor, with the checksums of Cargo.lock. The document is a
function of these and of SOURCE_DATE_EPOCH. Needs Python 3.11 (tomllib).
"""

import argparse
import base64
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tomllib
import urllib.parse


def package(name, version, purl, place="NOASSERTION", license="NOASSERTION", checksum=None):
    one = {
        "name": name,
        "SPDXID": "",
        "versionInfo": version,
        "downloadLocation": place,
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license if is_expression(license) else "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
    }
    if checksum:
        one["checksums"] = [checksum]
    return one


def is_expression(text):
    """Whether it has the form of an SPDX expression: npm also has `SEE LICENSE IN ...`, which is a sentence."""
    words = text.replace("(", " ").replace(")", " ").split()
    return all(word in ("AND", "OR", "WITH") for word in words[1::2]) and len(words) % 2 == 1


def debian(status):
    """Stanzas of /var/lib/dpkg/status (deb822); an installed package each."""
    for stanza in status.read_text().strip().split("\n\n"):
        field = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.M))
        if field["Status"] == "install ok installed":
            name, version, architecture = field["Package"], field["Version"], field["Architecture"]
            quoted = urllib.parse.quote(version, safe="")
            yield package(name, version, f"pkg:deb/debian/{name}@{quoted}?arch={architecture}&distro=debian-13")


def npm(lock, root):
    """What npm's own lock of a `node_modules` names and what is still there (npm-package-locks)."""
    for path, one in json.loads(lock.read_text())["packages"].items():
        if not (root / path).is_dir():
            continue
        name = path.rpartition("node_modules/")[2]
        version, resolved = one["version"], one.get("resolved", "NOASSERTION")
        kind, _, digest = one["integrity"].partition("-")
        checksum = {"algorithm": kind.upper(), "checksumValue": base64.b64decode(digest).hex()}
        purl = f"pkg:npm/{urllib.parse.quote(name, safe='/')}@{version}"
        yield package(name, version, purl, resolved, one.get("license", "NOASSERTION"), checksum)


def cargo(checkout):
    """The crates of the supervisor, without those that only build and test it."""
    lock = tomllib.loads((checkout / "Cargo.lock").read_text())["package"]
    locked = {(one["name"], one["version"]): one for one in lock}
    tree = ["cargo", "tree", "--locked", "--package", "casemate-supervisor", "--edges", "normal", "--prefix", "none", "--no-dedupe"]
    lines = subprocess.run([*tree, "--format", "{p}\t{l}"], cwd=checkout, check=True, capture_output=True, text=True).stdout
    for line in sorted(set(lines.splitlines())):
        words, _, license = line.partition("\t")
        name, version = words.split()[:2]
        version = version.removeprefix("v")
        one = locked[name, version]
        # Of crates.io; those without a checksum are this checkout's.
        digest = one.get("checksum")
        place = f"https://crates.io/api/v1/crates/{name}/{version}/download" if digest else "NOASSERTION"
        checksum = {"algorithm": "SHA256", "checksumValue": digest} if digest else None
        yield package(name, version, f"pkg:cargo/{name}@{version}", place, license.replace("/", " OR "), checksum)


def document(name, image, packages):
    packages = sorted(packages, key=lambda one: one["externalRefs"][0]["referenceLocator"])
    for number, one in enumerate(packages, 1):
        one["SPDXID"] = f"SPDXRef-Package-{number}"
    whole = package(name, image, "") | {"SPDXID": "SPDXRef-Image", "primaryPackagePurpose": "CONTAINER"}
    # It gets an address when it is pushed.
    del whole["externalRefs"]
    relate = lambda one, kind, other: {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
    date = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        # No page is there; the name has to be an address that no other document has.
        "documentNamespace": f"https://casemate.dev/spdx/{name}/{hashlib.sha256(image.encode()).hexdigest()}",
        "creationInfo": {"created": date.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: casemate-images-sbom"]},
        "packages": [whole, *packages],
        "relationships": [
            relate("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"),
            *(relate("SPDXRef-Image", "CONTAINS", one["SPDXID"]) for one in packages),
        ],
    }


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--name", required=True)
    options.add_argument("--image", required=True, help="the image's id")
    options.add_argument("--checkout", required=True, type=pathlib.Path)
    options.add_argument("--dpkg", type=pathlib.Path, help="/var/lib/dpkg/status of the image")
    options.add_argument("--npm", type=pathlib.Path, help="node_modules/.package-lock.json as npm wrote it")
    options.add_argument("--npm-root", type=pathlib.Path, help="the folder with node_modules")
    given = options.parse_args()
    packages = list(cargo(given.checkout))
    if given.dpkg:
        packages += debian(given.dpkg)
    if given.npm:
        packages += npm(given.npm, given.npm_root)
    print(json.dumps(document(given.name, given.image, packages), indent=1))


main()
