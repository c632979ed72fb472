# SPDX-License-Identifier: Apache-2.0
"""What is special about this manual (mkdocs.yml names this file):

- Pages link to files outside of docs/, as they do in the repository. A public header becomes its page of
  the reference. Any other file becomes a page of its own, under repo/.
- A name in `code`, such as `Graph::submit` or `ctxb_broker_open`, becomes a link to the reference where a
  page has it for the first time. A member that the reference does not have is an error.
- A block with a file's name ("```cpp blur.cpp") shows it as its title.
- At the end, every link and every anchor of the guides is followed, and nothing may be loaded from elsewhere.
"""
import html
import html.parser
import pathlib
import posixpath
import re
import urllib.parse
import xml.etree.ElementTree

from mkdocs.exceptions import BuildError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, InclusionLevel

log = get_plugin_logger("manual")
root = pathlib.Path(__file__).resolve().parents[2]
reference = root / "build" / "docs" / "reference"

link = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))", re.S)
fence = re.compile(r"^( *)(```+)(?:(\w+) +(\S+))?.*?^\1\2 *$", re.S | re.M)
languages = {".c": "c", ".h": "c", ".cpp": "cpp", ".hpp": "cpp", ".cu": "cuda", ".json": "json", ".py": "python",
             ".sh": "sh", ".cmake": "cmake", ".txt": "cmake", ".csv": "text"}


class Reference:
    """What Doxygen knows: the page of each header, and the place of each name."""

    def __init__(self):
        self.headers, self.names, self.members = {}, {}, {}
        for compound in xml.etree.ElementTree.parse(reference / "tags.xml").getroot():
            kind, name, page = (compound.get("kind"), *(compound.findtext(tag) for tag in ("name", "filename")))
            if kind == "file":
                header = pathlib.Path(compound.findtext("path"), name)
                if header.suffix in (".h", ".hpp"):
                    self.headers[header.relative_to(root).as_posix()] = page
            if kind not in ("class", "struct", "namespace", "file"):
                continue
            short = name.split("::")[-1]
            if kind in ("class", "struct"):
                self.names.setdefault(short, page)
                self.members.setdefault(short, set())
            for member in compound.iter("member"):
                place = f"{member.findtext('anchorfile')}#{member.findtext('anchor')}"
                own = member.findtext("name")
                if kind in ("class", "struct"):
                    self.members[short].add(own)
                    self.names.setdefault(f"{short}::{own}", place)
                    self.names.setdefault(f"{short}.{own}", place)
                elif own.lower().startswith("ctxb_"):
                    self.names.setdefault(own, place)
                elif member.get("kind") == "enumeration":
                    values = {value.text for value in member.iter("enumvalue")}
                    self.names.setdefault(own, place)
                    self.members.setdefault(own, set()).update(values)
                    self.names.update({f"{own}::{value}": place for value in values})

    def header_page(self, path):
        """The reference's page of a file of the repository, or None."""
        return "reference/" + self.headers[path] if path in self.headers else None


known = None


def in_site(path):
    """Where a file of the repository is in the site's sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if page := known.header_page(path):
        return page
    if (root / path).is_dir():
        return f"repo/{path}/README.md"
    return f"repo/{path}" if path.endswith(".md") else f"repo/{path}.md"


def outside_fences(text, change):
    """Applies `change` to what stands between the blocks of code."""
    parts, at = [], 0
    for block in fence.finditer(text):
        parts += [change(text[at:block.start()]), block.group()]
        at = block.end()
    return "".join([*parts, change(text[at:])])


def rewritten(text, path, targets=None):
    """A page's text with links as they are in the site. Adds to `targets` what they lead to."""
    def one(match):
        before, target, after = match.groups()
        file, _, anchor = target.partition("#")
        if not file or re.match(r"[a-z]+:", file):
            return match.group()
        to = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        if targets is not None:
            targets.add(to)
        at = posixpath.relpath(in_site(to), posixpath.dirname(in_site(path)) or ".")
        return before + at + ("#" + anchor if anchor else "") + after
    return outside_fences(text, lambda part: link.sub(one, part))


def text_of(path):
    """The page for a file or a folder outside of docs/."""
    file = root / path
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    if file.is_dir():
        entries = sorted(one for one in file.rglob("*") if one.is_file())
        rows = [f"- [{one.relative_to(file)}]({one.relative_to(file)})" for one in entries]
        return f"{hidden}# {file.name}\n\n" + "\n".join(rows) + "\n"
    if path.endswith(".md"):
        return file.read_text()
    language = languages.get(file.suffix, "text")
    return f"{hidden}# {file.name}\n\n`{path}`\n\n````{language}\n{file.read_text().rstrip()}\n````\n"


def on_files(files, config):
    global known
    known = Reference()
    for file in sorted((reference / "html").rglob("*")):
        if file.is_file():
            name = "reference/" + file.relative_to(reference / "html").as_posix()
            files.append(File.generated(config, name, abs_src_path=str(file)))
    pages = {f"docs/{file.src_uri}": (root / "docs" / file.src_uri).read_text() for file in files.documentation_pages()}
    in_nav = set(re.findall(r"repo/[\w./-]+\.md", pathlib.Path(config.config_file_path).read_text()))
    todo = list(pages) + [one.removeprefix("repo/") for one in in_nav]
    seen = set(pages)
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            if not (root / path).exists() or known.header_page(path) or (root / path).suffix in (".jpg", ".png"):
                continue
            pages[path] = text_of(path)
            name = in_site(path)
            files.append(File.generated(
                config, name, content=pages[path],
                inclusion=InclusionLevel.INCLUDED if name in in_nav else InclusionLevel.NOT_IN_NAV))
        targets = set()
        if path in pages:
            at = path + "/README.md" if (root / path).is_dir() else path
            rewritten(pages[path], at, targets)
        todo += [one for one in targets if not one.startswith(("docs/", "..")) and one not in seen]
    named = set()
    rewritten(pages["docs/reference.md"], "docs/reference.md", named)
    for header in sorted(set(known.headers) - named):
        log.warning(f"reference.md does not name the public header {header}")
    return files


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if not uri.startswith("repo/"):
        path = "docs/" + uri
    else:
        path = uri.removeprefix("repo/")
        if not (root / path).exists() and path.endswith("/README.md") is False:
            path = path.removesuffix(".md")
    text = rewritten(markdown, path)
    return re.sub(r"^( *```+)(\w+) +([\w.]+)$", r'\1\2 title="\3"', text, flags=re.M)


passed_over = r"<a\b.*?</a>|<pre\b.*?</pre>|<h[1-6]\b.*?</h[1-6]>"


def on_page_content(text, page, config, files):
    if page.file.src_uri.startswith("repo/"):
        return text
    linked = set()

    def one(match):
        if match.group(1) is None:
            return match.group()
        name = re.sub(r"\(.*\)$", "", html.unescape(match.group(1)))
        name = name.removeprefix("ctxbroker::").removeprefix("sdk::")
        owner, _, member = name.rpartition("::")
        if owner in known.members and member not in known.members[owner]:
            log.warning(f"{page.file.src_uri} names {name}, which the reference does not have")
        if name not in known.names or name in linked:
            return match.group()
        linked.add(name)
        place = posixpath.relpath("reference/" + known.names[name], posixpath.dirname(page.file.src_uri) or ".")
        return f'<a class="name" href="{place}">{match.group()}</a>'
    return re.sub(rf"(?:{passed_over})|<code>([\w:.~]+(?:\([^<]*\))?)</code>", one, text, flags=re.S)


def on_post_page(output, page, config):
    """Without a server, a link has to name the file."""
    return re.sub(r'href="((?:\.\./)*\.\.?)"', r'href="\1/index.html"', output)


class Page(html.parser.HTMLParser):
    """What a built page links to and loads, and its anchors."""

    def __init__(self, file):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("id", "name"):
            if attributes.get(name):
                self.ids.add(attributes[name])
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag == "link" and attributes.get("rel") != "canonical" and attributes.get("href"):
            self.loads.append(attributes["href"])
        if attributes.get("src"):
            self.loads.append(attributes["src"])


def on_post_build(config):
    site = pathlib.Path(config.site_dir)
    pages, wrong = {}, []

    def page(file):
        if file not in pages:
            pages[file] = Page(file)
        return pages[file]
    for file in sorted(site.rglob("*.html")):
        is_guide = "reference" not in file.relative_to(site).parts
        at = file.relative_to(site)
        if at.name == "404.html":
            continue
        for target in page(file).loads + (page(file).links if is_guide else []):
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page(file).loads and parts.scheme not in ("data", "javascript"):
                    wrong.append(f"{at} loads {target}")
                continue
            to = (file.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else file
            if not to.is_file():
                wrong.append(f"{at} links to {target}, which is not there")
            elif parts.fragment and to.suffix == ".html" and urllib.parse.unquote(parts.fragment) not in page(to).ids:
                wrong.append(f"{at} links to {target}, where there is no such place")
    if wrong:
        raise BuildError("the manual has broken links:\n  " + "\n  ".join(wrong))
