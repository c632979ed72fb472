# SPDX-License-Identifier: Apache-2.0
"""The blocks of code in the documentation, for the scripts that compile and run them.

A block begins with ```LANGUAGE, perhaps with the name of the file that it is. What a program writes, and
what a person reads, has the language `text`.
"""
import dataclasses
import pathlib
import re

languages = {"c", "cpp", "cuda", "cmake", "sh", "json", "python", "text", "yaml"}


@dataclasses.dataclass
class Block:
    page: str       # as README.md, docs/embedding.md
    line: int       # of the first line of text
    language: str
    file: str       # its name, or ""
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages(source):
    """Every page that people read, except what a program generates as a whole."""
    found = [*source.glob("*.md"), *source.glob("docs/**/*.md"), *source.glob("tests/**/*.md"),
             *source.glob("plugin_sdk/**/*.md"), *source.glob("assets/*.md")]
    return sorted(page for page in found if "docs/site" not in page.as_posix())


def blocks(source):
    """Returns all blocks, and what is wrong with the form of some."""
    found, wrong = [], []
    for page in pages(source):
        name, text = page.relative_to(source).as_posix(), page.read_text()
        plain = text
        for match in re.finditer(r"^( *)```([^\n]*)\n(.*?)^\1```[ \t]*$", text, re.S | re.M):
            indent, words, body = match.groups()
            language, _, file = words.strip().partition(" ")
            line = text.count("\n", 0, match.start()) + 2
            if language not in languages:
                wrong.append(f"{name}:{line - 1}: the block has the language '{language}'; "
                             f"it must be one of {', '.join(sorted(languages))}")
            body = "".join(one[len(indent):] if one.strip() else one for one in body.splitlines(True))
            found.append(Block(name, line, language, file.strip(), body))
            plain = plain.replace(match.group(), "\n" * match.group().count("\n"), 1)
        lines = plain.split("\n")
        for number, one in enumerate(lines):
            before = next((line for line in reversed(lines[:number]) if re.match(r" {0,3}\S", line)), "")
            in_list = re.match(r" *([-*]|\d+\.) ", before)
            if re.match(r" {4,}\S", one) and not lines[number - 1].strip() and not in_list:
                wrong.append(f"{name}:{number + 1}: a block of code without a language; write it between ```")
    return found, wrong


def matches(shown, written):
    """Whether the lines of a text block are in what was written, in their order; "..." stands for any text."""
    at = 0
    lines = written.splitlines()
    for one in shown.splitlines():
        if not one.strip():
            continue
        pattern = ".*".join(re.escape(part) for part in one.strip().split("..."))
        while at < len(lines) and not re.search(pattern, lines[at]):
            at += 1
        if at == len(lines):
            return False
        at += 1
    return True

