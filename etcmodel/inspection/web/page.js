// The page of `serve`: asks the server, and shows its answer in the document.
"use strict";

(() => {
  const {element, renderBars, renderDocument, renderLegend} = etcDocument;
  const at = (id) => document.getElementById(id);
  const INPUTS = ["query", "candidates", "text"];
  // By the end of a file's name.
  const KINDS = {
    md: "text/markdown",
    markdown: "text/markdown",
    html: "text/html",
    htm: "text/html",
    xhtml: "text/html",
  };
  let model = null;
  let view = null;

  function showProblem(message) {
    at("problem").textContent = message;
    at("problem").hidden = !message;
  }

  /** Returns the JSON of an answer; raises an error with its sentence. */
  async function read(response) {
    const content = await response.json().catch(() => null);
    if (!response.ok || !content) {
      const error = content && (content.error || content.detail);
      throw new Error(
        typeof error === "string"
          ? error
          : `The server answers with the code ${response.status}.`
      );
    }
    return content;
  }

  async function call(path, options) {
    let response;
    try {
      response = await fetch(path, options);
    } catch (error) {
      throw new Error("The server does not answer. Is it still running?");
    }
    return read(response);
  }

  function countWords() {
    const number = etcFind.countWords(at("text").value);
    at("count").textContent = `${number.toLocaleString("en")} ${
      number === 1 ? "word" : "words"
    }`;
  }

  /** Shows the inputs of the model, with an example. */
  async function start() {
    at("ask").disabled = true;
    model = await call("page/model");
    document.title = `${model.name} · etcmodel`;
    at("name").textContent = model.name;
    const task = etcTasks.TASKS[model.task];
    if (!task || !model.inputs.length) {
      throw new Error(
        "This model has no signature `text`, which takes a document as one " +
          "string. Export it again with this version of etcmodel."
      );
    }
    at("about").textContent = task.about;
    at("query-label").textContent = task.query || "Question";
    at("ask").textContent = task.verb || "Ask";
    for (const name of INPUTS) {
      const isInput = model.inputs.includes(name);
      if (name !== "text") {
        at(`${name}-field`).hidden = !isInput;
      }
      if (isInput && !at(name).value) {
        at(name).value = model.example[name] || "";
      }
    }
    countWords();
    at("ask").disabled = false;
  }

  /** Returns an input's text; control characters, as of PDFs, are spaces. */
  function textOf(name) {
    return at(name)
      .value.replace(/\r\n?/g, "\n")
      .replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85]/g, " ");
  }

  async function ask() {
    const inputs = Object.fromEntries(
      model.inputs.map((name) => [name, textOf(name)])
    );
    showProblem("");
    if (!inputs.text.trim()) {
      showProblem("The document is empty. Paste a text, or open a file.");
      at("text").focus();
      return;
    }
    const {isQueryOptional} = etcTasks.TASKS[model.task];
    for (const [name, message] of [
      ["query", isQueryOptional ? "" : "Write a question."],
      ["candidates", "Give at least one candidate."],
    ]) {
      if (message && inputs[name] !== undefined && !inputs[name].trim()) {
        showProblem(message);
        at(name).focus();
        return;
      }
    }
    at("status").textContent = "Reading …";
    at("ask").disabled = true;
    const begin = performance.now();
    try {
      const path = `v1/models/${encodeURIComponent(model.name)}:predict`;
      const {predictions} = await call(path, {
        method: "POST",
        headers: {"Content-Type": "application/json"},
        body: JSON.stringify({signature_name: "text", instances: [inputs]}),
      });
      const seconds = (performance.now() - begin) / 1000;
      at("status").textContent = `Answered in ${seconds.toFixed(1)} s`;
      show(inputs.text, predictions[0]);
    } finally {
      at("ask").disabled = false;
    }
  }

  /** Cuts the blocks of a text into parts: shaded ones, and those between. */
  function makeParagraphs(text, shades) {
    let next = 0;
    return etcFind.findBlocks(text).map(({kind, start, end}) => {
      const parts = [];
      let position = start;
      const add = (to, more) => {
        if (position < to) {
          parts.push({start: position, text: text.slice(position, to), ...more});
          position = to;
        }
      };
      while (next < shades.length && shades[next].start < end) {
        const shade = shades[next];
        add(shade.start);
        // With the space after it, one part for a sentence is enough.
        const space = /^\s*/.exec(text.slice(shade.end, end))[0];
        add(Math.min(shade.end + space.length, end), {
          shade: shade.value,
          hint: `${shade.name}: ${etcDocument.percent(shade.value)}`,
        });
        if (shade.end > end) {
          break;
        }
        next += 1;
      }
      add(end);
      return {kind, parts};
    });
  }

  function show(text, prediction) {
    const made = etcTasks.TASKS[model.task].show(text, prediction);
    at("answer").textContent = made.headline;
    at("detail").textContent = made.detail || "";
    const cut = prediction.tokens_cut;
    at("note").textContent = [
      made.note,
      cut ? `${cut} tokens did not fit into the model's input.` : "",
    ]
      .filter(Boolean)
      .join(" ");
    at("legend").replaceChildren();
    if (made.scale) {
      renderLegend(at("legend"), made.scale, "100 %");
    }
    if (view) {
      view.close();
    }
    at("result").hidden = false;
    view = renderDocument(at("document"), makeParagraphs(text, made.shades));
    at("document").scrollTop = 0;
    const marks = made.marks || [];
    view.mark(marks);
    showChoices(made.choices.filter((choice) => choice.items.length));
    at("answer-title").focus({preventScroll: true});
    const scrolls = getComputedStyle(at("document")).overflowY === "auto";
    if (!scrolls) {
      at("result").scrollIntoView();
    } else if (marks.length) {
      view.reveal(marks[0].start);
    }
  }

  /** Shows lists of alternatives; a click marks one in the text. */
  function showChoices(choices) {
    at("choices").classList.toggle("several", choices.length > 1);
    at("choices").replaceChildren();
    for (const {title, items, selected, plain} of choices) {
      const list = element("div", {class: plain ? "plain" : null});
      at("choices").append(
        element("section", {}, element("h3", {}, title), list)
      );
      const onSelect = (index) => {
        for (const bar of at("choices").querySelectorAll("[aria-pressed]")) {
          const isOther = !list.contains(bar);
          bar.setAttribute(
            "aria-pressed",
            isOther ? "false" : bar.getAttribute("aria-pressed")
          );
        }
        view.mark(items[index].marks);
        if (items[index].reveal !== undefined) {
          view.reveal(items[index].reveal);
        }
      };
      const hasMarks = items.some((item) => item.marks);
      renderBars(list, items, hasMarks ? {onSelect, selected} : {});
    }
  }

  /** Puts a file into the document; the server reads Markdown and HTML. */
  async function open(file) {
    showProblem("");
    const ending = file.name.split(".").pop().toLowerCase();
    const kind = KINDS[ending] || file.type || "text/plain";
    const {text} = await call("page/document", {
      method: "POST",
      headers: {"Content-Type": kind},
      body: file,
    });
    at("text").value = text;
    countWords();
    at("status").textContent = `Opened ${file.name}`;
    at("text").focus();
  }

  function guard(action) {
    return (...values) =>
      action(...values).catch((error) => {
        at("status").textContent = "";
        showProblem(error.message);
      });
  }

  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    guard(ask)();
  });
  at("form").addEventListener("keydown", (event) => {
    // This key press belongs to an input method; old browsers only give 229.
    if (event.isComposing || event.keyCode === 229) {
      return;
    }
    const isAsked = event.ctrlKey || event.metaKey || event.target.id === "query";
    if (event.key === "Enter" && isAsked && !event.shiftKey) {
      event.preventDefault();
      if (!at("ask").disabled && event.target.id !== "file") {
        guard(ask)();
      }
    }
  });
  at("text").addEventListener("input", countWords);
  at("file").addEventListener("change", () => {
    const [file] = at("file").files;
    if (file) {
      guard(open)(file).finally(() => {
        at("file").value = "";
      });
    }
  });
  const hasFiles = (event) =>
    event.dataTransfer && event.dataTransfer.types.includes("Files");
  // A file that is dropped beside the document must not replace the page.
  for (const name of ["dragover", "drop"]) {
    window.addEventListener(name, (event) => {
      if (hasFiles(event)) {
        event.preventDefault();
      }
    });
  }
  window.addEventListener("dragover", (event) => {
    at("text").classList.toggle("dropping", hasFiles(event));
  });
  window.addEventListener("dragleave", () => {
    at("text").classList.remove("dropping");
  });
  window.addEventListener("drop", (event) => {
    at("text").classList.remove("dropping");
    const file = hasFiles(event) && event.dataTransfer.files[0];
    if (file) {
      guard(open)(file);
    }
  });
  guard(start)();
})();
