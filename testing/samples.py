"""Returns a small record of each data set, in the format of its files."""

import json
import os


def wikihop(**changes):
    record = {
        "id": "WH_1",
        "query": "country_of_citizenship jan novak",
        "supports": ["Jan Novak was born in Brno.", "Brno is in Moravia."],
        "candidates": ["austria", "Czech Republic ", "poland"],
        "answer": " czech republic",
    }
    return record | changes


def hotpotqa(**changes):
    """Returns a record in the official format; `name=None` drops a field."""
    record = {
        "_id": "5a7a",
        "question": "In which country was Jan born?",
        "context": [
            ["Jan", ["Jan was born in Brno.", " He paints."]],
            ["Brno", ["Brno is a city.", " It is in Moravia.", ""]],
        ],
        "answer": "Czech Republic",
        "supporting_facts": [["Jan", 0], ["Brno", 1]],
        "type": "bridge",
        "level": "hard",
    }
    record.update(changes)
    return {key: value for key, value in record.items() if value is not None}


NQ_TOKENS = (
    ["<H1>", "Brno", "</H1>", "<P>", "Brno", "is", "a", "city", "</P>"]
    + ['<Table class="x y">', "<Tr>", "<Td>", "Moravia", "<", "</Td>"]
    + ["</Tr>", "</Table>"]
)
NQ_IS_HTML = (
    [True, False, True, True, False, False, False, False, True]
    + [True, True, True, False, False, True]
    + [True, True]
)


def _span(start, end, **more):
    return {"start_token": start, "end_token": end, **more}


def nq(**changes):
    record = {
        "annotations": [
            {
                "annotation_id": 13676402902866580638,
                "long_answer": _span(3, 9, candidate_index=0, start_byte=1),
                "short_answers": [_span(6, 8, start_byte=1), _span(4, 5)],
                "yes_no_answer": "NONE",
            },
            {
                "annotation_id": 7,
                "long_answer": _span(-1, -1, candidate_index=-1),
                "short_answers": [],
                "yes_no_answer": "YES",
            },
            {
                "annotation_id": 8,
                "long_answer": _span(9, 17),
                "short_answers": [],
                "yes_no_answer": "NO",
            },
        ],
        "document_html": "<html>",
        "document_title": "Brno",
        "document_tokens": [
            {"token": token, "html_token": html, "start_byte": 1, "end_byte": 2}
            for token, html in zip(NQ_TOKENS, NQ_IS_HTML, strict=True)
        ],
        "document_url": "https://en.wikipedia.org/wiki/Brno",
        "example_id": -2543388002166163252,
        "long_answer_candidates": [
            _span(3, 9, top_level=True, start_byte=1, end_byte=2),
            _span(9, 17, top_level=True),
            _span(10, 16, top_level=False),
        ],
        "question_text": "what is brno",
        "question_tokens": ["what", "is", "brno"],
    }
    record.update(changes)
    return record


def simplified_nq(record):
    """Converts the record to the format of `simplified-nq-train.jsonl`."""
    names = ("annotations", "document_url", "example_id", "question_text")
    names += ("long_answer_candidates",)
    simplified = {name: record[name] for name in names}
    simplified["document_text"] = " ".join(
        token["token"].replace(" ", "_") for token in record["document_tokens"]
    )
    return simplified


_OPENKP_WORDS = "Jan Novak  Brno is in Moravia"
# Visual features of a heading of 26 points in a block.
OPENKP_HEADING = [48.0, 619.0, 114.0, 36.0, 1.0, 0.0, 1.0, 0.0, 26.0, 0.0]


def openkp_node(start, end, text=None, features=None):
    """Returns a node of the page's words `start` to `end`; word 2 is empty."""
    if text is None:
        text = " ".join(_OPENKP_WORDS.split(" ")[start:end])
    return {
        "Id": 0,
        "text": text,
        "feature": OPENKP_HEADING * 2 if features is None else features,
        "start_idx": start,
        "end_idx": end,
    }


def openkp(nodes=None, **changes):
    nodes = [openkp_node(0, 2), openkp_node(2, 7)] if nodes is None else nodes
    return {
        "url": "http://a.com",
        "text": _OPENKP_WORDS,
        "VDOM": json.dumps(nodes),
        "KeyPhrases": [["Jan", "Novak"], ["moravia "], []],
        **changes,
    }


def triviaqa(**changes):
    return {
        "QuestionId": "tc_1",
        "QuestionSource": "http://a.com",
        "Question": "Which city of Moravia has a Špilberk?",
        "EntityPages": [
            {"DocSource": "TagMe", "Filename": "Brno.txt", "Title": "Brno"}
        ],
        "SearchResults": [{"Filename": "4/4_2.txt", "Rank": 0}],
        "Answer": {
            "Aliases": ["Brünn", "BRNO"],
            "NormalizedAliases": ["brünn", "brno"],
            "Value": "Brno",
            "HumanAnswers": ["The Brno!"],
            "Type": "WikipediaEntity",
        },
        **changes,
    }


def write_evidence(root, **changes):
    """Writes the pages of `triviaqa`, except pages whose content is None."""
    pages = {
        "wikipedia/Brno.txt": "Brno is a city.\n\n It has a castle. \n",
        "web/4/4_2.txt": "Špilberk, in Brünn",
        **changes,
    }
    for name, text in pages.items():
        path = os.path.join(root, "evidence", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if text is None:
            os.remove(path)
            continue
        with open(path, "wb") as stream:
            stream.write(text if isinstance(text, bytes) else text.encode())


DOCUMENT = {
    "id": "a",
    "text": "Ján lives in Brno (Moravia).",
    "mentions": [
        {"start": 13, "end": 17},
        {"start": 0, "end": 3, "entity": "Q1"},
        {"start": 4, "end": 9, "entity": None},
    ],
}


def classification(**changes):
    return {"id": "7", "text": "Brno is in Moravia.", "label": "city"} | changes


def selection(**changes):
    return {
        "id": "7",
        "query": "Where is Brno?",
        "paragraphs": [
            ["Brno is a city.", "It is in Moravia."],
            ["Jan sings."],
        ],
        "selected": [[0, 1]],
    } | changes


def question_answering(**changes):
    return {
        "id": "7",
        "question": "Where is Brno?",
        "text": "Jan lives in Brno.\n\nBrno is in Moravia.",
        "answers": [{"text": "Moravia", "answer_start": 31}],
    } | changes
