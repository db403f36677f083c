#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embed.py PAGE CSS D3 LICENSE OUT SCRIPT...: the page of a report as C arrays, what comes before its data and after them.

PAGE is HTML with the markers {{csp}}, {{style}}, {{data}} and {{scripts}}. D3 is d3.min.js, LICENSE goes before it; if D3 is empty,
it is not there, and the arrays are empty. All scripts of ours make one program. A page runs and shows nothing but what is
named here: its policy has the digests of the scripts and the style, and forbids every connection."""
import base64
import hashlib
import sys

def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def element(name, content):
    """The element, and the digest by which the policy knows it."""
    if f"</{name}" in content.lower() or "<!--" in content:
        sys.exit(f"embed.py: the {name} would end early: it contains </{name} or <!--")
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"<{name}>{content}</{name}>", f"'sha256-{digest}'"


def page(html, css, d3, scripts):
    """The page around its data."""
    style, style_digest = element("style", css)
    d3_element, d3_digest = element("script", d3)
    ours, ours_digest = element("script", "'use strict';\n(function () {\n" + "\n".join(scripts) + "}());\n")
    policy = (f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src {style_digest}; "
              f"script-src {d3_digest} {ours_digest}")
    for marker, text in (("csp", policy), ("style", style), ("scripts", d3_element + "\n" + ours)):
        if html.count("{{" + marker + "}}") != 1:
            sys.exit(f"embed.py: {{{{{marker}}}}} is expected once in the page")
        html = html.replace("{{" + marker + "}}", text)
    return html.split("{{data}}", 1)


def array(name, text):
    data = text.encode()
    lines = [", ".join(map(str, data[i:i + 32])) + "," for i in range(0, len(data), 32)]
    return (f"const unsigned char {name}[] = {{\n" + "\n".join(lines) + "\n0};\n"
            f"const size_t {name}_size = sizeof({name}) - 1;\n")


def main():
    html, css, d3, license_text, out, *scripts = sys.argv[1:]
    head = tail = ""
    if d3:
        head, tail = page(read(html), read(css), f"/*\n{read(license_text)}*/\n{read(d3)}", map(read, scripts))
    with open(out, "w", encoding="ascii") as file:
        file.write("/* SPDX-License-Identifier: MIT AND BSD-3-Clause: with d3. Made by embed.py. */\n#include <stddef.h>\n")
        file.write("extern const unsigned char clv_html_head[], clv_html_tail[];\n")
        file.write("extern const size_t clv_html_head_size, clv_html_tail_size;\n")
        file.write(array("clv_html_head", head) + array("clv_html_tail", tail))


main()
