"""Takes the pictures of the server's page for docs/serving.md.

    python -m testing.page_pictures docs/images

The answers in the pictures are written below by hand.
"""

import os
import sys
import time

from selenium.webdriver.common.by import By

from testing import pages

_QUERY = "Where did the clockmaker's daughter learn her trade?"
_PARAGRAPHS = (
    (
        "Ada Lindqvist",
        (
            "Ada Lindqvist was born in Bergen, the daughter of a clockmaker.",
            0.35,
        ),
        ("She left the town at sixteen.", 0.12),
        ("For five years she was an apprentice in Krakow.", 0.94),
        ("Her first clock is in the town hall of Tromsø.", 0.05),
    ),
    (
        "The workshop",
        ("The workshop stood beside the river.", 0.04),
        ("Its windows faced north, because the light is even there.", 0.02),
        ("Apprentices from all over Europe came to Krakow for it.", 0.58),
    ),
    (
        "",
        ("After the war the house was sold.", 0.01),
        ("Today it is a museum with a small café.", 0.01),
    ),
)
_WIKIHOP = {
    "query": "country_of_citizenship ada lindqvist",
    "candidates": "poland\nnorway\nsweden\ndenmark",
    "text": "Ada Lindqvist was born in Bergen.\n\nBergen is a city in Norway, "
    "with a harbour.\n\nShe worked in Poland, and later in Sweden.",
}


def _text() -> str:
    """Returns the text of the document in the picture."""
    return "\n\n".join(
        (f"# {title}\n" if title else "") + " ".join(x for x, _ in sentences)
        for title, *sentences in _PARAGRAPHS
    )


def _answer(record):
    """Returns a prediction of the task "answer", with evidence."""
    del record
    units = [
        (text, value, i, j)
        for i, (_, *sentences) in enumerate(_PARAGRAPHS)
        for j, (text, value) in enumerate(sentences)
    ]
    names = ("units", "unit_probabilities", "unit_paragraphs", "unit_numbers")
    return {
        "answer": "Krakow",
        "answer_type": 0,
        "answer_probability": 0.81,
        "answer_paragraph": 0,
        "answer_unit": 2,
        "answer_start": 40,
        "answer_end": 46,
        "no_answer_probability": 0.06,
        "tokens_cut": 0,
        **dict(zip(names, map(list, zip(*units, strict=True)), strict=True)),
    }


def _choose(record):
    """Returns a prediction of the task "wikihop"."""
    return {
        "answer": "norway",
        "answer_index": 1,
        "candidate_probabilities": [0.07, 0.86, 0.05, 0.02],
        "candidates": record["candidates"].split("\n"),
        "tokens_cut": 0,
    }


def main(folder: str) -> None:
    """Writes the pictures."""
    browser = pages.open_browser()
    pictures = (
        (
            "answer",
            _answer,
            {"query": _QUERY, "text": _text()},
            1080,
            720,
            "light",
        ),
        ("wikihop", _choose, _WIKIHOP, 400, 600, "dark"),
    )
    try:
        for task, answer, example, width, height, scheme in pictures:
            browser.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 1}
                | {"mobile": False},
            )
            browser.execute_cdp_cmd(
                "Emulation.setEmulatedMedia",
                {"features": [{"name": _SCHEME, "value": scheme}]},
            )
            model = pages.StubModel(task, answer)
            with pages.serving(model, example, task) as address:
                browser.get(address)
                ask = browser.find_element(By.ID, "ask")
                while not ask.is_enabled():
                    time.sleep(0.1)
                ask.click()
                while not browser.find_elements(By.TAG_NAME, "mark"):
                    time.sleep(0.1)
                time.sleep(0.5)
                path = os.path.join(folder, f"page_{task}.png")
                browser.save_screenshot(path)
    finally:
        browser.quit()


_SCHEME = "prefers-color-scheme"


if __name__ == "__main__":
    main(*sys.argv[1:])
