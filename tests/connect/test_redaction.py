"""Secrets: what forms of them are found, in what places, and that no text is searched for ever."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from baton.connect.import_report import ImportReport
from baton.connect.importing import import_traces
from baton.connect.redaction import Redaction
from baton.trace.formats.files import read_all

WORD = "Zq7Xw2Pv9Lm4Kt8R"
KEY = "sk-ant-api03-" + WORD


def redacted(text: str, *patterns: str) -> str:
    return Redaction(patterns)(text, ImportReport())


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"body": json.dumps({"api_key": WORD})}),
        json.dumps({"a": json.dumps({"body": json.dumps({"password": WORD})})}),
        f"{{'api_key': '{WORD}', b'token': b'{WORD}'}}",
        f'{{"apiKey":"{WORD}","clientSecret" : "{WORD}"}}',
        f"export AWS_SECRET_ACCESS_KEY={WORD}/+x",
        f"aws_access_key_id = {WORD}",
        f"DB_PASS={WORD} PGPASSWORD={WORD} pwd={WORD}",
        f"DefaultEndpointsProtocol=https;AccountKey={WORD}{WORD}==;",
        f"Authorization: token {WORD}",
        f'-H "X-Api-Key: {WORD}" -H \'Cookie: session={WORD}; a=b\'',
        f"https://host/path?key={WORD}&sig={WORD}&page=2",
        f"mysql --password {WORD} --user me",
        f"curl -s -u me:{WORD} https://host",
        f"machine host login me password {WORD}",
        f"<password>{WORD}</password>",
        f"password: |\n    {WORD}\n",
        f'passphrase = "correct horse {WORD}"',
        f"redis://:{WORD}@host:6379",
        f"postgres:\\/\\/me:{WORD}@host\\/db",
        f"gsk_{WORD}{WORD} tvly-{WORD} whsec_{WORD}{WORD} hvs.{WORD}{WORD} r8_{WORD}{WORD}",
        f"https://hooks.slack.com/services/T00000000/B00000000/{WORD}",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{WORD}\n-----END PGP PRIVATE KEY BLOCK-----",
        "data: " + b64encode(f"OPENAI_API_KEY={WORD}{WORD}".encode()).decode(),
    ],
)  # fmt: skip
def test_forms(text: str) -> None:
    found = redacted(text)
    assert WORD not in found
    assert "[redacted" in found
    assert b64encode(WORD.encode()).decode()[4:12] not in found
    assert redacted(found) == found  # twice is once


def test_json_stays_json() -> None:
    inner = {"command": f'curl -H "X-Api-Key: {WORD}" https://me:{WORD}@host', "env": {"TOKEN": WORD}, "n": 5}
    found = json.loads(redacted(json.dumps({"arguments": json.dumps(inner)})))
    again = json.loads(found["arguments"])
    assert again["n"] == 5
    assert again["command"].startswith("curl -H ")
    assert WORD not in json.dumps(again)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096 total_tokens=12345678 token_count=123456789",
        "const apiKey = process.env.OPENAI_API_KEY; key=lambda x: x",
        'Authorization: Bearer "$OPENAI_API_KEY"; password=os.environ["PW"]; token=${GITHUB_TOKEN}',
        "bypass=everything compass: northwest1 secretary: Miss Moneypenny tokenizer=AutoTokenizer",
        "src/baton/connect/readers/claude_code/entries.py 0123456789abcdef0123456789abcdef",
    ],
)
def test_no_secrets(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("piece", ["a", "token", "a-", "curl ", "token=\\", "key: |\n", "sk-", "://", "QUJD"])
def test_a_long_text_is_searched_in_a_time_that_grows_with_it(piece: str) -> None:
    """An open repetition before a name took hours for an image in letters; this ends or it does not."""
    redacted(piece * (600_000 // len(piece)) + " token")


def test_a_persons_pattern_is_found_in_base64() -> None:
    assert redacted("see " + b64encode(b"the name of Klaus is here").decode(), "Kl.us").startswith(
        "see [redacted"
    )


def test_the_name_of_a_property_may_say_that_its_value_is_a_secret() -> None:
    from baton.connect.assembly.contents import Contents

    report = ImportReport()
    kept = Contents(report, redact=Redaction()).properties(
        {"db.password": "hunter2hunter2", "env": {"ACCESS_TOKEN": ["plain", "words"], "API_KEY": "hunter2"}}
    )
    assert kept == {
        "db.password": "[redacted named secret]",
        "env": {"ACCESS_TOKEN": ["plain", "words"], "API_KEY": "[redacted named secret]"},
    }
    assert report.redacted == {"named secret": 2}


def test_the_report_has_no_secret_either(tmp_path: Path) -> None:
    steps = [
        {"step_id": 1, "source": "user", "message": "go"},
        {"step_id": f"x {KEY}", "source": KEY, "message": KEY},
        {"step_id": 3, "source": "agent", "message": "gone"},
    ]
    document = {
        "schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps,
    }  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(document))
    done = import_traces(tmp_path / "a.json", out=tmp_path / "out", redact=())
    assert WORD not in json.dumps(done.report.as_dict())
    assert WORD.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    (trace,) = read_all(tmp_path / "out")
    assert not any(WORD in (trace.text(ref) or "") for ref in trace.payloads)
