"""Secrets leave texts, in each form in which requests and answers carry them."""

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import pytest

from hpad.api.secrets import MOST, MOST_CHARACTERS, Secrets, public

SECRET = "pä55/wörd & \"more\" 'things'\\"
OF_BASIC = base64.b64encode(f"somebody:{SECRET}".encode()).decode()
OF_SASL = base64.b64encode(f"\0me\0{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        html.escape(SECRET),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
        "pä55/wörd",
        json.dumps(SECRET).replace("/", "\\/"),  # PHP
        json.dumps(SECRET, ensure_ascii=False).replace("&", "\\u0026"),  # Go
        "".join(f"\\u{ord(each):04X}" for each in SECRET),
        re.sub("%..", lambda found: found[0].lower(), quote(SECRET)),  # .NET
        quote(quote(SECRET)),
        json.dumps(json.dumps(SECRET)),
        html.escape(SECRET).replace("&quot;", "&#34;"),
        quote(OF_BASIC[4:-4], safe=""),
    ],
)
def test_each_form_is_hidden(form: str) -> None:
    secrets = Secrets()
    secrets.add(SECRET)
    found = secrets.hidden(f"at first {form} at last")
    assert found.startswith("at first ")
    assert found.endswith(" at last")
    assert not any(part in found for part in ("55", "rd", "more", "things"))


@pytest.mark.parametrize("encoded", [OF_BASIC, OF_SASL, base64.urlsafe_b64encode(OF_BASIC.encode()).decode()])
def test_base64_is_hidden_behind_any_user_name(encoded: str) -> None:
    secrets = Secrets([SECRET, OF_BASIC])
    assert len(secrets.hidden(encoded)) < len(encoded) / 2


def test_the_password_of_a_basic_header_is_hidden_alone() -> None:
    secrets = Secrets([f"Basic {base64.b64encode(b'hpad:hunter22').decode()}"])
    assert secrets.hidden("Basic authentication: no user hpad with password hunter22") == (
        "Basic authentication: no user hpad with password ***"
    )


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("bad token hunter22-and-lo", "bad token ***"),
        ("bad token hunter2…", "bad token ***…"),
        ("bad token hunter22-and-l (401)", "bad token *** (401)"),
        ("a hunter is no secret", "a hunter is no secret"),
        ("hunter22-and-long hunter22-and-long", "*** ***"),
    ],
)
def test_a_secret_that_was_cut_is_hidden(text: str, hidden: str) -> None:
    assert Secrets(["hunter22-and-long"]).hidden(text) == hidden


def test_replaced_secrets_stay_hidden_for_a_while_and_their_number_is_bounded() -> None:
    secrets = Secrets(["of the settings"])
    for number in range(3 * MOST):
        secrets.add(f"token-{number:04}-x")
        secrets.add("read each time")
    text = f"of the settings, read each time, token-{3 * MOST - 1:04}-x, token-{2 * MOST + 2:04}-x, token-0001-x!"
    assert secrets.hidden(text) == "***, ***, ***, ***, token-0001-x!"


def test_long_secrets_are_bounded_by_their_characters_and_in_the_words_that_are_hidden_alone() -> None:
    secrets, texts = Secrets(), [f"{number:04}" * (MOST_CHARACTERS // 4 // 20) for number in range(40)]
    for text in texts:
        secrets.add(text)
    assert [secrets.hidden(text) == "***" for text in texts] == [False] * 20 + [True] * 20
    secrets.add(" ".join(f"word-{number:04}" for number in range(1000)))
    assert secrets.hidden("word-0003, word-0900") == "***, word-0900"


@pytest.mark.parametrize("word", ["Bearer", "basic", "true", "ab"])
def test_words_that_are_no_secrets_stay(word: str) -> None:
    assert Secrets([word]).hidden(f"x {word} x") == f"x {word} x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:9090/a/b", "http://h:9090/a/b"),
        ("https://user:pass@h/token?client_secret=x#y", "https://h/token"),
        ("http://h#x?y", "http://h"),
        ("redis://:pass@h:6379/0", "redis://h:6379/0"),
    ],
)
def test_a_server_is_named_without_what_may_be_secret(url: str, shown: str) -> None:
    assert public(url) == shown


def test_a_text_without_secrets_keeps_its_escapes() -> None:
    text = r"no queue a%2fb in {\"vhost\": \"\u0026\"} &amp; more"
    assert Secrets([SECRET]).hidden(text) == text
