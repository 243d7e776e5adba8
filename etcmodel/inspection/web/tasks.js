// What the page shows of an answer, for each task. Pure functions of the
// document's text and of the prediction that the server gives for it.
//
// Each returns:
//   headline: the answer;
//   detail: what is known of it, such as its probability;
//   note: what the reader must know of the marks; may be missing;
//   shades: [{start, end, value, name}], the shaded parts of the text;
//   scale: what the shades mean;
//   choices: lists of alternatives: {title, selected, items}. An item is a bar
//     (see `etcDocument.renderBars`) with the `marks` that it shows.
"use strict";

const etcTasks = (() => {
  const {percent} = etcDocument;
  const {
    findBlocks,
    findInOrder,
    findOccurrences,
    findPhrase,
    findTokens,
    findWords,
    fromBytes,
  } = etcFind;
  const MOST_CHOICES = 4;
  const NO_ANSWER = "No answer";
  // Scripts whose languages write particles as words of their own. A candidate
  // need not occur, so a part of a longer word would be another word.
  const JOINS_NOTHING =
    /[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}]/u;

  function marksOf(places, kind) {
    return places.filter(Boolean).map((place) => ({...place, kind}));
  }

  /** Returns units of the text with places and probabilities. */
  function locateUnits(text, units, probabilities) {
    const places = findInOrder(text, units);
    return units.map((unit, i) => ({
      content: unit,
      text: unit.trim(),
      place: places[i],
      value: probabilities[i],
    }));
  }

  function shadesOf(units, name) {
    return units
      .filter((unit) => unit.place)
      .map(({place, value}) => ({...place, value, name}));
  }

  /** Says how many units are not in the text as they were returned. */
  function noteOf(units) {
    const missing = units.filter((unit) => unit.text && !unit.place).length;
    return missing ? `${missing} sentences could not be found in the text.` : "";
  }

  function best(units) {
    return units
      .filter((unit) => unit.text)
      .sort((x, y) => y.value - x.value);
  }

  function unitItems(units, more) {
    return best(units)
      .slice(0, MOST_CHOICES)
      .map(({text, value, place}) => ({
        label: text,
        value,
        marks: [...(more || []), ...marksOf([place], "evidence")],
        reveal: place ? place.start : undefined,
      }));
  }

  function classify(text, prediction) {
    if (prediction.number !== undefined) {
      const headline = String(Number(prediction.number.toPrecision(6)));
      return {headline, detail: "", shades: [], choices: []};
    }
    const {labels, probabilities, is_chosen: isChosen} = prediction;
    const order = labels.map((_, i) => i);
    order.sort((x, y) => probabilities[y] - probabilities[x]);
    const chosen = isChosen
      ? order.filter((i) => isChosen[i]).map((i) => labels[i])
      : [prediction.label];
    const probability = probabilities[labels.indexOf(prediction.label)];
    return {
      headline: chosen.join(", ") || "No label",
      detail: isChosen ? "" : `Probability ${percent(probability)}`,
      shades: [],
      choices: [
        {
          title: "Probability of each label",
          items: order.map((i) => ({
            label: labels[i],
            value: probabilities[i],
          })),
        },
      ],
    };
  }

  function select(text, prediction) {
    const units = locateUnits(
      text,
      prediction.units,
      prediction.unit_probabilities
    );
    const selected = units.filter((_, i) => prediction.is_selected[i]);
    const marks = marksOf(
      selected.map((unit) => unit.place),
      "answer"
    );
    const number = selected.length;
    return {
      headline: number
        ? `${number} ${number === 1 ? "passage" : "passages"} selected`
        : "Nothing selected",
      detail: "",
      note: noteOf(units),
      marks,
      shades: shadesOf(units, "selected"),
      scale: "probability",
      choices: [
        {
          title: "Most probable passages",
          items: unitItems(units, []).map((item) => ({
            ...item,
            marks: item.marks.map((mark) => ({...mark, kind: "answer"})),
          })),
        },
      ],
    };
  }

  /** Returns the unit that contains a place, of units in their order. */
  function unitAt(units, {start, end}) {
    let low = 0;
    let high = units.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (units[middle].place.end < end) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const unit = units[low];
    return unit && unit.place.start <= start ? unit : null;
  }

  /** Returns the places in the headings that form a paragraph's title. */
  function placesInTitle(text, prediction) {
    const headings = [];
    let number = 0;
    for (const block of findBlocks(text)) {
      if (block.kind === "text") {
        number += 1;
      } else if (number === prediction.answer_paragraph) {
        headings.push(block);
      }
    }
    // Headings without text between them form one title, joined by spaces.
    const title = headings.map(({start, end}) => text.slice(start, end));
    const [first, last] = fromBytes(title.join(" "), [
      prediction.answer_start,
      prediction.answer_end,
    ]);
    const places = [];
    let offset = 0;
    for (const {start, end} of headings) {
      const from = Math.max(start, start + first - offset);
      const to = Math.min(end, start + last - offset);
      if (from < to) {
        places.push({start: from, end: to});
      }
      offset += end - start + 1;
    }
    return places;
  }

  /** Returns the places of an answer in the text; none if it is not there. */
  function placesOf(text, prediction, units, positions) {
    const {answer_paragraph: paragraph, answer_unit: number} = prediction;
    if (number < 0) {
      return placesInTitle(text, prediction);
    }
    const index = positions.findIndex(
      ([x, y]) => x === paragraph && y === number
    );
    const unit = units[index];
    if (!unit || !unit.place) {
      return [];
    }
    const {content, place} = unit;
    const [start, end] = fromBytes(content, [
      prediction.answer_start,
      prediction.answer_end,
    ]);
    const first = place.start - (content.length - content.trimStart().length);
    return [{start: first + start, end: first + end}];
  }

  /**
   * Answers of span models: a span of a unit, yes, no or none.
   *
   * `positions` has [paragraph, number in the paragraph] for each unit.
   */
  function spans(text, prediction, units, positions) {
    const {answer, answer_type: type} = prediction;
    const isSpan = type === 0 && answer;
    const occurrences = isSpan ? findOccurrences(text, answer) : [];
    const inOrder = units.filter((unit) => unit.place);
    for (const place of occurrences) {
      place.unit = unitAt(inOrder, place);
    }
    // The most probable evidence first, places outside of sentences last.
    const valueOf = ({unit}) => (unit ? unit.value : -1);
    occurrences.sort((x, y) => valueOf(y) - valueOf(x) || x.start - y.start);
    let found = [];
    if (isSpan) {
      // Models of earlier versions return no positions.
      found =
        prediction.answer_paragraph === undefined
          ? occurrences.slice(0, 1)
          : placesOf(text, prediction, units, positions);
    }
    const answerMarks = marksOf(found, "answer");
    const notes = [noteOf(units)];
    if (isSpan && !found.length) {
      notes.unshift("The answer could not be found in the text.");
    }
    const [first] = found;
    const places = occurrences.filter((x) => !first || x.start !== first.start);
    if (first) {
      places.unshift({...first, unit: unitAt(inOrder, first)});
    }
    const choices = [];
    if (places.length > 1) {
      choices.push({
        title: "Where the answer occurs",
        selected: first ? 0 : -1,
        items: places.slice(0, MOST_CHOICES).map((place, i) => ({
          label: place.unit ? place.unit.text : around(text, place),
          value: Math.max(0, valueOf(place)),
          text: place.unit ? undefined : "in a title",
          marks: first && i === 0 ? answerMarks : marksOf([place], "answer"),
          reveal: place.start,
        })),
      });
    }
    choices.push({
      title: "Evidence",
      items: unitItems(units, answerMarks),
    });
    return {
      headline: type === 3 || !answer ? NO_ANSWER : answer,
      detail: `Probability ${percent(prediction.answer_probability)}`,
      note: notes.filter(Boolean).join(" "),
      marks: answerMarks,
      shades: shadesOf(units, "evidence"),
      scale: "probability as evidence",
      choices,
    };
  }

  function answer(text, prediction) {
    const {unit_paragraphs: paragraphs, unit_numbers: numbers} = prediction;
    const made = spans(
      text,
      prediction,
      locateUnits(text, prediction.units, prediction.unit_probabilities),
      paragraphs.map((paragraph, i) => [paragraph, numbers[i]])
    );
    const none = percent(prediction.no_answer_probability);
    return {...made, detail: `${made.detail} · no answer: ${none}`};
  }

  function hotpotqa(text, prediction) {
    const {sentences} = prediction;
    return spans(
      text,
      prediction,
      locateUnits(
        text,
        sentences.flat(),
        prediction.supporting_fact_probabilities.flat()
      ),
      sentences.flatMap((row, i) => row.map((_, j) => [i, j]))
    );
  }

  function wikihop(text, prediction) {
    const {candidates, candidate_probabilities: values} = prediction;
    const order = candidates.map((_, i) => i).filter((i) => candidates[i]);
    order.sort((x, y) => values[y] - values[x]);
    const items = order.map((i) => {
      const isWhole = JOINS_NOTHING.test(candidates[i]);
      const places = findOccurrences(text, candidates[i], isWhole);
      const number = places.length;
      return {
        label: candidates[i],
        value: values[i],
        hint: number
          ? `occurs ${number} ${number === 1 ? "time" : "times"}`
          : "does not occur in the text",
        marks: marksOf(places, "answer"),
        reveal: number ? places[0].start : undefined,
      };
    });
    const selected = order.indexOf(prediction.answer_index);
    return {
      headline: prediction.answer || NO_ANSWER,
      detail: items[selected]
        ? `Probability ${percent(items[selected].value)} · ` +
          items[selected].hint
        : "",
      note: "A candidate is marked wherever it occurs.",
      marks: items[selected] ? items[selected].marks : [],
      shades: [],
      choices: [{title: "Candidates", selected, items}],
    };
  }

  function nq(text, prediction) {
    const places = findTokens(text, prediction.tokens);
    const span = (start, end) => {
      const words = start < 0 ? [] : places.slice(start, end).filter(Boolean);
      return words.length
        ? {start: words[0].start, end: words[words.length - 1].end}
        : null;
    };
    const logistic = (score) => 1 / (1 + Math.exp(-score));
    const long = span(
      prediction.best_long_answer_start,
      prediction.best_long_answer_end
    );
    const short = span(
      prediction.best_short_answer_start,
      prediction.best_short_answer_end
    );
    const yesNo = ["", "yes", "no"][prediction.best_yes_no];
    const item = (name, place, kind, score) => ({
      label: `${name}: ${text.slice(place.start, place.end)}`,
      value: logistic(score),
      text: `score ${score.toFixed(1)}`,
      marks: marksOf([place], kind),
      reveal: place.start,
    });
    const items = [];
    if (short) {
      items.push(
        item("Short", short, "answer", prediction.short_answer_score)
      );
    }
    if (long) {
      items.push(item("Long", long, "evidence", prediction.long_answer_score));
    }
    const hasLong = prediction.long_answer_start >= 0;
    const hasShort = prediction.short_answer_start >= 0;
    const shown = ["", "yes", "no"][prediction.yes_no];
    const headline =
      shown ||
      (hasShort && short
        ? text.slice(short.start, short.end)
        : hasLong && long
          ? "A paragraph"
          : NO_ANSWER);
    return {
      headline,
      detail: "An answer with a score above 0 is more probable than none.",
      note: yesNo && !shown ? `The best answer would be ${yesNo}.` : "",
      marks: [
        ...(hasShort ? marksOf([short], "answer") : []),
        ...(hasLong ? marksOf([long], "evidence") : []),
      ],
      shades: [],
      choices: [
        {
          title: hasLong || hasShort ? "Answers" : "Best answers, not chosen",
          items,
        },
      ],
    };
  }

  function openkp(text, prediction) {
    if (prediction.is_refused) {
      return {headline: "The document cannot be read", shades: [], choices: []};
    }
    const words = findWords(text);
    const phrases = prediction.keyphrases.filter(Boolean);
    const places = phrases.map((phrase) => findPhrase(words, phrase));
    const all = marksOf(places.flat(), "phrase");
    return {
      headline: phrases[0] || "No keyphrase",
      detail: phrases.length ? "The most probable keyphrase" : "",
      note: "Keyphrases are marked wherever they occur.",
      marks: all,
      shades: [],
      choices: [
        {
          title: "Keyphrases",
          items: phrases.map((phrase, i) => ({
            label: phrase,
            value: prediction.keyphrase_scores[i],
            marks: [...marksOf(places[i], "answer"), ...all],
            reveal: places[i].length ? places[i][0].start : undefined,
          })),
        },
      ],
    };
  }

  function readTwice(text, prediction) {
    const {answer: found, answer_start: first} = prediction;
    const places =
      first < 0 ? [] : [fromBytes(text, [first, prediction.answer_end])];
    const marks = places.map(([start, end]) => ({start, end, kind: "answer"}));
    const others = findOccurrences(text, found).filter(
      ({start}) => marks.length && start !== marks[0].start
    );
    const items = [...marks, ...others].slice(0, MOST_CHOICES).map((place) => ({
      label: around(text, place),
      value: 0,
      text: "",
      marks: marksOf([place], "answer"),
      reveal: place.start,
    }));
    return {
      headline: found || NO_ANSWER,
      detail: `Confidence ${percent(prediction.answer_score)}`,
      note: "",
      marks,
      shades: [],
      choices:
        items.length > 1
          ? [{title: "Places of the answer", selected: 0, plain: true, items}]
          : [],
    };
  }

  /** Returns a piece of text with some words before and after it. */
  function around(text, {start, end}) {
    const before = text.slice(Math.max(0, start - 40), start);
    const after = text.slice(end, end + 40);
    const cut = (isCut, dots) => (isCut ? dots : "");
    return (
      cut(start > 40, "… ") +
      `${before}${text.slice(start, end)}${after}`.replace(/\s+/g, " ") +
      cut(end + 40 < text.length, " …")
    );
  }

  /** What the page says of each task, and how it reads its answers. */
  const TASKS = {
    answer: {
      about: "Answers questions about a document",
      show: answer,
    },
    classify: {
      about: "Classifies documents",
      query: "Question or labels (may be empty)",
      isQueryOptional: true,
      verb: "Classify",
      show: classify,
    },
    hotpotqa: {
      about: "Answers questions from several paragraphs, with evidence",
      show: hotpotqa,
    },
    nq: {
      about: "Finds the paragraph and the words that answer a question",
      show: nq,
    },
    openkp: {
      about: "Finds the keyphrases of a document",
      verb: "Find keyphrases",
      show: openkp,
    },
    read_twice_hotpotqa: {
      about: "Answers questions from several paragraphs",
      show: readTwice,
    },
    read_twice_narrativeqa: {
      about: "Answers questions about books and scripts",
      show: readTwice,
    },
    read_twice_triviaqa: {
      about: "Answers questions from long documents",
      show: readTwice,
    },
    select: {
      about: "Selects sentences of a document",
      query: "Query (may be empty)",
      isQueryOptional: true,
      verb: "Select",
      show: select,
    },
    wikihop: {
      about: "Chooses the answer among candidates",
      query: "Question: a relation and a subject",
      show: wikihop,
    },
  };

  return {TASKS};
})();
