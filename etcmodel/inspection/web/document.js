// Shows documents in a browser: paragraphs of parts (sentences, tokens),
// shaded by numbers from 0 to 1, with marked spans; and bars of numbers.
//
// Knows nothing of a server, and takes plain data. Texts become text nodes,
// never HTML. A classic script without dependencies, so that a page can contain
// it; it defines the global constant `etcDocument`.
//
//   const view = etcDocument.renderDocument(container, [
//     {kind: "title", parts: [{text: "Jan Novak"}]},
//     {kind: "text", parts: [
//       {text: "He is a cook. ", shade: 0.1},
//       {text: "He lives in Krakow.", shade: 0.9, hint: "evidence: 90 %"},
//     ]},
//   ]);
//   view.mark([{start: 35, end: 41, kind: "answer"}]);  // "Krakow"
//   view.reveal(35);
"use strict";

const etcDocument = (() => {
  // Parts that are made before the browser may draw again.
  const PARTS_AT_ONCE = 2000;

  /** Makes an element with attributes and children (nodes or strings). */
  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === true) {
        made.setAttribute(name, "");
      } else if (value !== false && value !== null && value !== undefined) {
        made.setAttribute(name, value);
      }
    }
    made.append(...children);
    return made;
  }

  /** Formats a probability: 0.934 is "93 %", 0.004 is "0.4 %". */
  function percent(value) {
    const shown = 100 * value;
    if (shown > 0 && shown < 0.1) {
      return "< 0.1 %";
    }
    const isSmall = shown > 0 && shown < 1;
    return `${shown.toFixed(isSmall ? 1 : 0)} %`;
  }

  function clamp(value) {
    return Math.min(1, Math.max(0, value));
  }

  /**
   * A document in the page; see `renderDocument`.
   *
   * Positions are those of the parts: a part begins at its `start`, or else
   * where the part before it ends, the first at 0. They count UTF-16 units, as
   * JavaScript's strings do.
   */
  class DocumentView {
    constructor(container, paragraphs, options) {
      this.container = container;
      this.parts = [];
      this._options = options;
      this._paragraphs = paragraphs;
      this._elements = [];
      // Index of a part -> its marks.
      this._marked = new Map();
      this._current = 0;
      this._isClosed = false;
      let position = 0;
      for (const paragraph of paragraphs) {
        for (const part of paragraph.parts) {
          const start = part.start === undefined ? position : part.start;
          position = start + part.text.length;
          this.parts.push({...part, start, end: position});
        }
      }
      container.replaceChildren();
      container.classList.add("etc-document");
      if (options.onPart) {
        this._listen();
      }
      /** Resolves when all parts are in the page. */
      this.whenBuilt = this._build();
    }

    /** Shades the parts: an array of numbers from 0 to 1, null for none. */
    shade(values, hints) {
      this.parts.forEach((part, i) => {
        part.shade = values[i];
        part.hint = hints ? hints[i] : undefined;
        if (this._elements[i]) {
          this._paintShade(i);
        }
      });
    }

    /**
     * Replaces all marks: `{start, end, kind}`, the most important first.
     *
     * `kind` becomes a class of the `<mark>`: "answer", "evidence", ...
     */
    mark(spans) {
      const before = this._marked.keys();
      const marked = new Map();
      spans.forEach((span, order) => {
        let i = span.start < span.end ? this.indexAt(span.start) : Infinity;
        for (; i < this.parts.length && this.parts[i].start < span.end; i++) {
          if (this.parts[i].end > span.start) {
            if (!marked.has(i)) {
              marked.set(i, []);
            }
            marked.get(i).push({...span, order});
          }
        }
      });
      this._marked = marked;
      for (const i of new Set([...before, ...marked.keys()])) {
        if (this._elements[i]) {
          this._paintText(i);
        }
      }
    }

    /**
     * Scrolls to the mark or part at a position, once it is in the page.
     *
     * A container that scrolls is scrolled alone, otherwise the page.
     */
    async reveal(position) {
      const i = this.indexAt(position);
      if (!this._elements[i]) {
        await this.whenBuilt;
      }
      const part = this._elements[i];
      if (!part) {
        return;
      }
      const marks = [...part.querySelectorAll("mark")];
      const target =
        marks.find((mark) => Number(mark.dataset.end) > position) || part;
      this._scrollTo(target);
      // Paragraphs that come into sight may turn out to be larger.
      requestAnimationFrame(() => this._scrollTo(target));
    }

    _scrollTo(target) {
      const {container} = this;
      if (!/auto|scroll/.test(getComputedStyle(container).overflowY)) {
        target.scrollIntoView({block: "center"});
        return;
      }
      const place = target.getBoundingClientRect();
      const frame = container.getBoundingClientRect();
      const middle = (frame.height - place.height) / 2;
      container.scrollTop += place.top - frame.top - middle;
    }

    /** Returns the index of the last part that starts at or before a place. */
    indexAt(position) {
      let low = 0;
      let high = this.parts.length - 1;
      while (low < high) {
        const middle = Math.ceil((low + high) / 2);
        if (this.parts[middle].start <= position) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      return low;
    }

    /** Returns the element of a part; undefined until it is made. */
    elementOf(index) {
      return this._elements[index];
    }

    /** Moves the focus to a part, without scrolling, once it is in the page. */
    async focus(index) {
      if (!this._elements[index]) {
        await this.whenBuilt;
      }
      if (this._elements[index]) {
        this._move(index);
        this._elements[index].focus({preventScroll: true});
      }
    }

    /** Stops building; for a document that is replaced. */
    close() {
      this._isClosed = true;
    }

    async _build() {
      let made = 0;
      for (const paragraph of this._paragraphs) {
        const isTitle = paragraph.kind === "title";
        const block = element(isTitle ? "h3" : "p", {
          class: isTitle ? "etc-title" : "etc-paragraph",
          dir: "auto",
        });
        this.container.append(
          ...(paragraph.aside ? [paragraph.aside, block] : [block])
        );
        for (let i = 0; i < paragraph.parts.length; i++) {
          const index = this._elements.length;
          const part = element("span", {class: "etc-part"});
          part.dataset.index = index;
          if (this._options.onPart) {
            // One stop for the Tab key; arrows move on.
            part.tabIndex = index === this._current ? 0 : -1;
            part.setAttribute("role", "button");
          }
          this._elements.push(part);
          this._paintText(index);
          this._paintShade(index);
          block.append(part);
          made += 1;
          if (made % PARTS_AT_ONCE === 0) {
            await new Promise((resolve) => setTimeout(resolve));
            if (this._isClosed) {
              return;
            }
          }
        }
      }
    }

    _paintShade(index) {
      const {shade, hint} = this.parts[index];
      const part = this._elements[index];
      const isShaded = shade !== undefined && shade !== null;
      part.classList.toggle("etc-shaded", isShaded);
      if (isShaded) {
        part.style.setProperty("--shade", clamp(shade).toFixed(3));
      }
      if (hint) {
        part.title = hint;
      } else {
        part.removeAttribute("title");
      }
    }

    _paintText(index) {
      const {start, end, text} = this.parts[index];
      if (!this._marked.has(index)) {
        this._elements[index].textContent = text;
        return;
      }
      const own = this._marked.get(index);
      own.sort((x, y) => x.start - y.start);
      const cuts = new Set([start, end]);
      for (const span of own) {
        cuts.add(Math.max(start, span.start)).add(Math.min(end, span.end));
      }
      const places = [...cuts].sort((x, y) => x - y);
      const pieces = new DocumentFragment();
      let next = 0;
      let active = [];
      for (let i = 0; i + 1 < places.length; i++) {
        const [from, to] = [places[i], places[i + 1]];
        while (next < own.length && own[next].start <= from) {
          active.push(own[next++]);
        }
        active = active.filter((x) => x.end > from);
        active.sort((x, y) => x.order - y.order);
        const piece = text.slice(from - start, to - start);
        const [span] = active;
        if (span) {
          const mark = element("mark", {class: `etc-mark etc-${span.kind}`});
          mark.dataset.end = to;
          mark.append(piece);
          pieces.append(mark);
        } else {
          pieces.append(piece);
        }
      }
      this._elements[index].replaceChildren(pieces);
    }

    _listen() {
      const indexOf = (event) => {
        const part = event.target.closest(".etc-part");
        return part ? Number(part.dataset.index) : -1;
      };
      this.container.addEventListener("click", (event) => {
        const index = indexOf(event);
        if (!this._isClosed && index >= 0) {
          this._move(index);
          this._options.onPart(index);
        }
      });
      this.container.addEventListener("keydown", (event) => {
        const index = indexOf(event);
        const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (this._isClosed || index < 0) {
          return;
        }
        if (step && this._elements[index + step]) {
          this._move(index + step);
          this._elements[index + step].focus();
          event.preventDefault();
        } else if (event.key === "Enter" || event.key === " ") {
          this._options.onPart(index);
          event.preventDefault();
        }
      });
    }

    _move(index) {
      this._elements[this._current].tabIndex = -1;
      this._elements[index].tabIndex = 0;
      this._current = index;
    }
  }

  /**
   * Shows a document in a container, and returns its `DocumentView`.
   *
   * `paragraphs` is a list of `{kind, parts}`: a "title" or a "text", with an
   * optional element `aside` that is put before it. A part
   * has its `text`, and optionally `shade` (from 0 to 1), `hint` (shown by the
   * pointer) and `start` (its position; see `DocumentView`).
   *
   * `options.onPart(index)` is called for a part that is clicked, or chosen by
   * the keyboard: arrows move between parts, Enter chooses.
   *
   * Long documents are made in several steps, between which the page answers.
   */
  function renderDocument(container, paragraphs, options) {
    return new DocumentView(container, paragraphs, options || {});
  }

  /**
   * Shows numbers as bars: `{label, value, text, hint}`, a list.
   *
   * `value` is from 0 to 1, `text` what is written beside it, by default as
   * percent. With `options.onSelect(index)`, each bar is a button, and
   * `options.selected` the index of the one that is pressed.
   */
  function renderBars(container, items, options) {
    const {onSelect, selected} = options || {};
    const list = element("ol", {class: "etc-bars"});
    const bars = items.map(({label, value, text, hint}, index) => {
      const fill = element("span", {class: "etc-bar-fill"});
      fill.style.width = `${100 * clamp(value)}%`;
      const bar = element(
        onSelect ? "button" : "div",
        {
          class: "etc-bar",
          type: onSelect ? "button" : null,
          "aria-pressed": onSelect ? String(index === selected) : null,
          title: hint,
        },
        element("span", {class: "etc-bar-label", dir: "auto"}, label),
        element("span", {class: "etc-bar-value"}, text || percent(value)),
        element("span", {class: "etc-bar-track", "aria-hidden": "true"}, fill)
      );
      list.append(element("li", {}, bar));
      return bar;
    });
    if (onSelect) {
      bars.forEach((bar, index) => {
        bar.addEventListener("click", () => {
          bars.forEach((other, i) => {
            other.setAttribute("aria-pressed", String(i === index));
          });
          onSelect(index);
        });
      });
    }
    container.replaceChildren(list);
  }

  /** Shows what the shades mean: a scale between two names. */
  function renderLegend(container, low, high) {
    container.replaceChildren(
      element(
        "span",
        {class: "etc-legend"},
        element("span", {}, low),
        element("span", {class: "etc-legend-scale", "aria-hidden": "true"}),
        element("span", {}, high)
      )
    );
  }

  return {element, percent, renderBars, renderDocument, renderLegend};
})();
