"""Fill docstrings and comments that are wider than 100 columns; words stay as they are.

    python tests/tools/fill_prose.py course_lib/capture      (a file or a folder)
    git diff --word-diff                                     (nothing but line breaks)

In:  Python files. Out: the same files; a line for each long line that must be broken by hand.

Only paragraphs with a long line are filled: plain prose, `In:` and `Out:` with what hangs below them,
and items of lists. Tables, code and anything that is indented further stay as they are.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WIDTH = 100
MARK = re.compile(r"(In: +|Out: +|- |\* |\d+\. )")
"""What an item begins with: the lines below it hang."""
STARTS_ANEW = re.compile(
    r"(In PyTorch|In torch|PyTorch has|Raises|Returns|Exit code)\b|`\w+`: |\w+: "
)
"""Words that begin a line of their own, also without a blank line above."""
SENTENCE = re.compile(r"(?<![.][a-z])[.?!][)”\"]? (?=[A-Z`“\"(])")
NO_PROSE = re.compile(r"(>>>|\||```|#|--|──|\$ )|.*\S {2,}\S")
"""Tables, code, rulers: left alone."""
ROW = re.compile(r"( *(?!In: |Out: )\S(?:(?! {2}).)*? {2,})((?:(?! {3}).)+)$")
"""A row of a table with two columns."""
DRAWN = re.compile(r"[─│|└]|──| → | # ")
BOX = re.compile(r"[─│└▶]")
WORD = re.compile(r"(?:[^\s`]|`[^`]{1,60}`)+|\S+")
"""A word, or some in backquotes: what is one piece of code stays on one line."""
DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|ruff:|pragma|mypy:|-{3,})|#:")


@dataclass
class Paragraph:
    """Lines of prose: the text before the first word, the indent of the others, and the words."""

    first: str
    rest: str
    text: str

    def filled(self, at_end: int = 0) -> list[str]:
        """The lines; the last one leaves room for `at_end` letters."""
        words = WORD.findall(self.text)
        if " ".join(words) != self.text:  # a backquote without its other
            words = self.text.split(" ")
        lines = [self.first + words[0]]
        for place, word in enumerate(words[1:], 1):
            room = WIDTH - (at_end if place == len(words) - 1 else 0)
            if len(lines[-1]) + 1 + len(word) <= room:
                lines[-1] += f" {word}"
            else:
                lines.append(self.rest + word)
        return lines


def is_soft(line: str, following: str, widest: int) -> bool:
    """True if the author's editor broke the line here: the next word would not have fitted."""
    first_word = following.split()[0]
    return len(line) + 1 + len(first_word) > min(widest, 130) - 8


def paragraphs(
    lines: list[str], indent: str, start: str, at_end: int = 0
) -> Iterator[list[str] | Paragraph]:
    """Lines of a docstring: prose as paragraphs, and what is no prose as it is.

    `start`: what stands before the first word of the first line. `at_end`: letters that will follow
    the last line."""
    widths = [len(line) for line in lines]
    widths[-1] += at_end
    at = 0
    while at < len(lines):
        line = lines[at]
        first = start if at == 0 and start else indent
        body = line[len(first) :]
        is_indented_more = body.startswith(" ") or not line.startswith(first)
        mark = MARK.match(body)
        inside = body[mark.end() :] if mark else body
        if widths[at] > WIDTH and (row := ROW.match(line)) and not DRAWN.search(line):
            column = " " * row.start(2)
            texts = [row[2]]
            end = at + 1
            while end < len(lines) and re.match(column + r"\S", lines[end]):
                texts.append(lines[end].strip())
                end += 1
            yield Paragraph(row[1], column, " ".join(texts))
            at = end
            continue
        if not body.strip() or is_indented_more or NO_PROSE.match(inside):
            yield [line]
            at += 1
            continue

        hanging = indent + " " * (mark.end() if mark else 0)
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if mark and not following.startswith(hanging) and is_of_paragraph(following, indent):
            # `In:` whose next line does not hang: it stays so.
            hanging = indent
        texts = [inside]
        end = at + 1
        block = [line]
        while end < len(lines) and is_of_paragraph(lines[end], hanging):
            block.append(lines[end])
            end += 1
        widest = max(widths[at:end])

        # A line that ends early was ended on purpose.
        length = 1
        while length < len(block) and is_soft(block[length - 1], block[length], widest):
            # In a comment the indent ends with "# "
            prose = block[length][len(hanging) :].strip()
            if STARTS_ANEW.match(prose) and block[length - 1].rstrip()[-1] in ".:?!)":
                break
            texts.append(prose)
            length += 1
        is_drawn = any(BOX.search(each) for each in block[:length])
        if is_drawn or max(widths[at : at + length]) <= WIDTH:
            yield block[:length]
        else:
            yield Paragraph(first + (mark.group() if mark else ""), hanging, " ".join(texts))
        at += length


def is_of_paragraph(line: str, hanging: str) -> bool:
    """True for a line that goes on with a paragraph: as far to the right, and no beginning."""
    if not line.startswith(hanging) or not line.strip():
        return False
    body = line[len(hanging) :]
    return not body.startswith(" ") and not MARK.match(body) and not NO_PROSE.match(body)


def docstring_lines(source: str) -> Iterator[tuple[int, int]]:
    """First and last line (from 1) of each string that stands alone, as docstrings do."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str) and node.end_lineno is not None:
            yield node.lineno, node.end_lineno


def filled_docstring(lines: list[str]) -> list[str]:
    """The lines of one docstring, filled."""
    opening = re.match(r'( *)([rR]?""")', lines[0])
    if opening is None or max(map(len, lines)) <= WIDTH:
        return lines
    indent = opening[1]
    closes_alone = lines[-1].strip() == '"""'
    if not closes_alone and not lines[-1].endswith('"""'):
        return lines

    if closes_alone:
        body, tail = lines[:-1], [lines[-1]]
    else:
        body, tail = [*lines[:-1], lines[-1][:-3]], []

    found: list[str] = []
    parts = list(paragraphs(body, indent, opening[0], at_end=0 if closes_alone else 3))
    for place, part in enumerate(parts):
        is_last = place == len(parts) - 1 and not closes_alone
        if isinstance(part, list):
            found += part
            continue
        # A summary that is a sentence of one line stands alone.
        summary = SENTENCE.search(part.text) if place == 0 else None
        if summary and len(part.first) + summary.end() - 1 <= WIDTH and indent:
            cut = summary.end()
            found += [part.first + part.text[: cut - 1], ""]
            part = Paragraph(indent, indent, part.text[cut:])
        found += part.filled(at_end=3 if is_last else 0)
    if not closes_alone:
        found[-1] += '"""'
    return found + tail


def filled_comments(lines: list[str], tokens: list[tokenize.TokenInfo]) -> list[str]:
    """The lines with comments filled that stand on lines of their own."""
    own = {}
    for token in tokens:
        row = token.start[0] - 1
        if token.type == tokenize.COMMENT and lines[row].lstrip().startswith("#"):
            own[row] = token.start[1]

    found: list[str] = []
    row = 0
    while row < len(lines):
        if row not in own or DIRECTIVE.match(lines[row].lstrip()):
            found.append(lines[row])
            row += 1
            continue
        start = " " * own[row] + "# "
        block = [lines[row]]
        while row + len(block) in own and lines[row + len(block)].startswith(start):
            block.append(lines[row + len(block)])
        if max(map(len, block)) <= WIDTH or not block[0].startswith(start):
            found += block
        else:
            for part in paragraphs(block, start, start):
                found += part if isinstance(part, list) else part.filled()
        row += len(block)
    return found


def above(lines: list[str], tokens: list[tokenize.TokenInfo]) -> list[str]:
    """Comments behind code that make a line too long stand above it."""
    moved = {}
    for token in tokens:
        if token.type != tokenize.COMMENT:
            continue
        row, column = token.start[0] - 1, token.start[1]
        line = lines[row]
        is_behind = line[:column].strip()
        if is_behind and len(line) > WIDTH and not DIRECTIVE.match(token.string):
            moved[row] = (line[:column].rstrip(), token.string)

    found: list[str] = []
    for row, line in enumerate(lines):
        if row in moved:
            code, comment = moved[row]
            indent = " " * (len(code) - len(code.lstrip()))
            found += [indent + comment, code]
        else:
            found.append(line)
    return found


def shorter_rulers(lines: list[str]) -> list[str]:
    """`# ---- the drawing -------`: at most 100 columns wide."""
    found = []
    for line in lines:
        is_ruler = len(line) > WIDTH and re.match(r"\s*# -{3,} .* -{3,}$", line)
        found.append(line.rstrip("-").ljust(WIDTH, "-") if is_ruler else line)
    return found


def tokens_of(lines: list[str]) -> list[tokenize.TokenInfo]:
    text = "\n".join(lines) + "\n"
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def in_tables(lines: list[str]) -> bool:
    """True for a file with parts that no formatter may touch."""
    return any(re.match(r"\s*# fmt: off", line) for line in lines)


def filled(source: str) -> str:
    """The source of a file with its prose filled."""
    lines = source.split("\n")
    for first, last in sorted(docstring_lines(source), reverse=True):
        lines[first - 1 : last] = filled_docstring(lines[first - 1 : last])

    lines = shorter_rulers(lines)
    if not in_tables(lines):
        lines = above(lines, tokens_of(lines))
    return "\n".join(filled_comments(lines, tokens_of(lines)))


def words(source: str) -> list[str]:
    """All that is not white space, without the signs of comments: what may not change."""
    found = [word for word in source.split() if word != "#"]
    return sorted(word for word in found if set(word) != {"-"})


def main() -> None:
    for argument in sys.argv[1:]:
        path = Path(argument)
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            new = filled(source)
            if words(source) != words(new):
                print(f"{file}: left alone, its words would change")
                continue
            if new != source:
                file.write_text(new, encoding="utf-8")
            prose = {n for first, last in docstring_lines(new) for n in range(first, last + 1)}
            for number, line in enumerate(new.split("\n"), 1):
                is_prose = number in prose or line.lstrip().startswith("#")
                if len(line) > WIDTH and is_prose:
                    print(f"{file}:{number}: {line.strip()[:60]}")


if __name__ == "__main__":
    main()
