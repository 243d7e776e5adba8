// Shows an attention map: the model's input, and who reads whom.
//
// The data of the page has the nodes in this order: global tokens, tokens of
// the text, segments and memories. See `page_data` in map_page.py.
"use strict";

(() => {
  const {element, percent, renderBars, renderDocument, renderLegend} =
    etcDocument;
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const NUM_BARS = 14;

  /** Formats a probability, with a decimal below 10 %. */
  const format = (value) =>
    value >= 0.001 && value < 0.0995
      ? `${(100 * value).toFixed(1)} %`
      : percent(value);

  const numGlobal = data.globalTokens.length;
  const numTokens = numGlobal + data.texts.length;
  const firstMemory = numTokens + data.segments.length;
  const numNodes = firstMemory + data.memories.length;
  // Numbers of the nodes that rows belong to, and rows by node.
  const rowNodes = data.rows
    ? [...data.rows, ...data.segments.map((_, i) => numTokens + i)]
    : Array.from({length: firstMemory}, (_, i) => i);
  const rowOf = new Map(rowNodes.map((node, row) => [node, row]));

  /** Decompresses the rows of a layer; see `_packed` in map_page.py. */
  async function unpack(layer) {
    const packed = Uint8Array.from(atob(layer.data), (x) => x.charCodeAt(0));
    const stream = new Blob([packed])
      .stream()
      .pipeThrough(new DecompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    const numHeads = layer.heads.length;
    // Only layers that attend to memories have rows of segments.
    const numRows = layer.numRows;
    let place = 0;
    const take = (number) => bytes.subarray(place, (place += number));
    const counts = take(numHeads * numRows);
    const rests = take(numHeads * numRows);
    const total = counts.reduce((sum, x) => sum + x, 0);
    const values = take(total);
    const [low, middle, high] = [take(total), take(total), take(total)];
    const starts = new Uint32Array(numHeads * numRows + 1);
    counts.forEach((x, i) => {
      starts[i + 1] = starts[i] + x;
    });
    const keys = new Int32Array(total);
    for (let i = 0; i < numHeads * numRows; i++) {
      const node = rowNodes[i % numRows];
      for (let j = starts[i]; j < starts[i + 1]; j++) {
        const code = low[j] + 256 * middle[j] + 65536 * high[j];
        const folded = code - numGlobal;
        keys[j] =
          folded < 0
            ? code
            : node + (folded % 2 ? -(folded + 1) / 2 : folded / 2);
      }
    }
    return {numRows, starts, keys, values, rests};
  }

  const probability = (byte) => (byte / 255) ** 2;

  class AttentionMap {
    constructor() {
      this.layer = data.defaultLayer;
      this.head = 0;
      this.chosen = data.defaultNode;
      this.unpacked = new Map();
      this.chips = [];
      // The block of each token of the text.
      this.blocks = data.blocks.flatMap((block) =>
        Array(block.last - block.first).fill(block)
      );
      this.linked = new Map();
      for (const [source, target, name] of data.links) {
        this.addLink(source, target, name);
        this.addLink(target, source, name);
      }
    }

    addLink(node, other, name) {
      if (!this.linked.has(node)) {
        this.linked.set(node, new Map());
      }
      this.linked.get(node).set(other, name);
    }

    label(node) {
      if (node < numGlobal) {
        return data.globalTokens[node][0];
      }
      if (node < numTokens) {
        return data.texts[node - numGlobal];
      }
      if (node < firstMemory) {
        return data.segments[node - numTokens];
      }
      return data.memories[node - firstMemory][0];
    }

    kind(node) {
      if (node < numGlobal) {
        return `global token (${data.globalTokens[node][1]})`;
      }
      if (node < numTokens) {
        const piece = data.pieces[node - numGlobal];
        return piece ? `token ${piece}` : "token";
      }
      if (node < firstMemory) {
        return "segment: the mean of its tokens";
      }
      const segment = data.memories[node - firstMemory][1];
      return `memory of segment ${segment + 1}`;
    }

    /** A token with its neighbours, for lists. */
    inContext(node) {
      const i = node - numGlobal;
      if (i < 0 || node >= numTokens) {
        const shown = this.label(node);
        return node < numGlobal ? `◆ ${shown}` : shown;
      }
      const {first, last} = this.blocks[i];
      const join = (from, to) => {
        const begin = Math.max(first, from);
        return data.texts
          .slice(begin, Math.min(last, to))
          .map((text, k) => (k && data.spaces[begin + k] ? " " : "") + text)
          .join("");
      };
      const space = (k) => (k > first && k < last && data.spaces[k] ? " " : "");
      return [
        join(i - 3, i) + space(i),
        element("b", {}, data.texts[i]),
        space(i + 1) + join(i + 1, i + 4),
      ];
    }

    async rows() {
      if (!this.unpacked.has(this.layer)) {
        this.unpacked.set(this.layer, unpack(data.layers[this.layer]));
      }
      return this.unpacked.get(this.layer);
    }

    /** Returns node -> probability, and the sum of the others. */
    async found() {
      const {numRows, starts, keys, values, rests} = await this.rows();
      const found = new Map();
      const first = this.head * numRows;
      if (this.direction === "readers") {
        for (let row = 0; row < numRows; row++) {
          for (let j = starts[first + row]; j < starts[first + row + 1]; j++) {
            if (keys[j] === this.chosen) {
              found.set(rowNodes[row], probability(values[j]));
            }
          }
        }
        return {found, rest: null};
      }
      const row = rowOf.get(this.chosen);
      if (row === undefined || row >= numRows) {
        return {found, rest: null};
      }
      for (let j = starts[first + row]; j < starts[first + row + 1]; j++) {
        found.set(keys[j], probability(values[j]));
      }
      return {found, rest: probability(rests[first + row])};
    }

    get direction() {
      return document.querySelector("input[name=direction]:checked").value;
    }

    show() {
      byId("title").textContent = data.title;
      this.describe(byId("answers"), data.answers);
      this.describe(byId("summary"), data.summary);
      this.showDocument();
      this.showCuts();
      this.showSelectors();
      byId("memories").hidden = !data.memories.length;
      this.update();
    }

    describe(list, items) {
      for (const [name, value] of items) {
        const kind = name.split(" ")[0].toLowerCase();
        list.append(
          element("dt", {class: `map-${kind}`}, name),
          element("dd", {}, value)
        );
      }
    }

    showDocument() {
      const paragraphs = [];
      this.nodes = [];
      const parts = (first, last) => {
        const made = [];
        for (let i = first; i < last; i++) {
          this.nodes.push(numGlobal + i);
          const space = i + 1 < last ? data.spaces[i + 1] : "";
          made.push({text: data.texts[i] + space, hint: this.hint(i)});
        }
        return made;
      };
      for (const block of data.blocks) {
        if (block.heading) {
          const isNode = block.segment !== null;
          this.nodes.push(isNode ? numTokens + block.segment : -1);
          paragraphs.push({kind: "title", parts: [{text: block.heading}]});
        }
        paragraphs.push({
          kind: "text",
          aside: numGlobal ? this.makeMargin(block.globalTokens) : null,
          parts: parts(block.first, block.last),
        });
      }
      const container = byId("document");
      container.classList.toggle("map-without-margin", !numGlobal);
      this.view = renderDocument(container, paragraphs, {
        onPart: (index) => this.choose(this.nodes[index]),
      });
      this.partOf = new Map(this.nodes.map((node, i) => [node, i]));
      this.view.mark(
        data.marks.map(([first, last, kind]) => ({
          start: this.view.parts[this.partOf.get(numGlobal + first)].start,
          end:
            this.view.parts[this.partOf.get(numGlobal + last - 1)].start +
            data.texts[last - 1].length,
          kind,
        }))
      );
      this.view.whenBuilt.then(() => {
        this.nodes.forEach((node, i) => {
          this.view.elementOf(i).classList.toggle("map-plain", node < 0);
        });
        this.paint();
      });
    }

    hint(i) {
      return data.pieces[i] || undefined;
    }

    makeMargin(globalTokens) {
      const margin = element("div", {class: "map-margin"});
      for (const node of globalTokens) {
        const [label, kind] = data.globalTokens[node];
        const chip = element(
          "button",
          {
            class: "map-chip",
            type: "button",
            title: `${kind}: ${label}`,
            "data-node": node,
            tabindex: this.chips.length ? -1 : 0,
          },
          label
        );
        chip.addEventListener("click", () => this.choose(node));
        chip.addEventListener("keydown", (event) => this.moveChip(event, node));
        this.chips[node] = chip;
        margin.append(chip);
      }
      return margin;
    }

    /** Moves between the global tokens: one stop for the Tab key. */
    moveChip(event, node) {
      const step = {ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1}[
        event.key
      ];
      const other = this.chips[node + step];
      if (step && other) {
        this.focusChip(node + step);
        event.preventDefault();
      }
    }

    focusChip(node, options) {
      this.chips.forEach((chip, other) => {
        chip.tabIndex = other === node ? 0 : -1;
      });
      this.chips[node].focus(options);
    }

    showCuts() {
      byId("cuts").hidden = !data.cuts.length;
      const number = data.cuts.reduce((sum, [, , x]) => sum + x, 0);
      const unit = number === 1 ? "token" : "tokens";
      byId("cuts-title").textContent =
        `Not given to the model: ${number.toLocaleString("en")} ${unit}`;
      for (const [name, text, count] of data.cuts) {
        byId("cut-texts").append(
          element(
            "details",
            {},
            element(
              "summary",
              {},
              `${name}, ${count.toLocaleString("en")} tokens: ` +
                `${text.slice(0, 80)}${text.length > 80 ? "…" : ""}`
            ),
            element("p", {}, text)
          )
        );
      }
    }

    showSelectors() {
      data.layers.forEach((layer, i) => {
        byId("layer").append(element("option", {value: i}, layer.label));
      });
      byId("layer").value = this.layer;
      this.showHeads();
      byId("layer").addEventListener("change", () => {
        this.layer = Number(byId("layer").value);
        this.showHeads();
        this.update();
      });
      byId("head").addEventListener("change", () => {
        this.head = Number(byId("head").value);
        this.update();
      });
      for (const input of document.querySelectorAll("[name=direction]")) {
        input.addEventListener("change", () => this.update());
      }
    }

    showHeads() {
      const {heads} = data.layers[this.layer];
      byId("head").replaceChildren(
        ...heads.map((name, i) => element("option", {value: i}, name))
      );
      this.head = Math.min(this.head, heads.length - 1);
      byId("head").value = this.head;
      byId("head").disabled = heads.length < 2;
    }

    choose(node) {
      if (node >= 0) {
        this.chosen = node;
        this.update();
      }
    }

    async update() {
      const asked = [this.chosen, this.layer, this.head, this.direction].join();
      const {found, rest} = await this.found();
      const now = [this.chosen, this.layer, this.head, this.direction].join();
      // Something else was chosen while the layer was unpacked.
      if (asked === now) {
        this.values = found;
        this.paint();
        this.showPanel(found, rest);
      }
    }

    paint() {
      if (!this.values) {
        return;
      }
      const most = Math.max(...this.values.values(), 1e-9);
      // The square root spreads small probabilities.
      const shade = (node) =>
        this.values.has(node) ? Math.sqrt(this.values.get(node) / most) : null;
      const hints = this.nodes.map((node) => {
        const value = this.values.get(node);
        const piece =
          node >= numGlobal && node < numTokens
            ? data.pieces[node - numGlobal]
            : "";
        return [value && format(value), piece].filter(Boolean).join(" · ");
      });
      this.view.shade(this.nodes.map(shade), hints);
      const linked = this.linked.get(this.chosen) || new Map();
      const mark = (made, node) => {
        made.classList.toggle("map-chosen", node === this.chosen);
        made.setAttribute("aria-pressed", String(node === this.chosen));
        made.classList.toggle("map-linked", linked.has(node));
      };
      this.nodes.forEach((node, i) => {
        if (this.view.elementOf(i) && node >= 0) {
          mark(this.view.elementOf(i), node);
        }
      });
      this.chips.forEach((chip, node) => {
        const value = shade(node);
        chip.style.setProperty("--shade", value === null ? 0 : value);
        const [label, kind] = data.globalTokens[node];
        const shown = value === null ? "" : ` · ${format(this.values.get(node))}`;
        chip.title = `${kind}: ${label}${shown}`;
        mark(chip, node);
      });
      renderLegend(byId("legend"), "0 %", format(this.values.size ? most : 0));
    }

    showPanel(found, rest) {
      const isReaders = this.direction === "readers";
      const name = this.label(this.chosen);
      byId("chosen").textContent = isReaders
        ? `Who reads “${name}”`
        : `Whom “${name}” reads`;
      const links = [...(this.linked.get(this.chosen) || new Map())];
      const shown = links
        .slice(0, 8)
        .map(([node, name]) => this.label(node) + (name && ` (${name})`));
      const more = links.length > 8 ? `, ${links.length - 8} more` : "";
      byId("details").textContent =
        this.kind(this.chosen) +
        (shown.length ? `; linked with ${shown.join(", ")}${more}` : "");
      const ranked = [...found].sort((x, y) => y[1] - x[1]);
      const most = ranked.length ? ranked[0][1] : 1;
      const bars = (pairs, container) => {
        renderBars(
          container,
          pairs.map(([node, value]) => ({
            label: "",
            value: value / most,
            text: format(value),
          })),
          {onSelect: (i) => this.goTo(pairs[i][0])}
        );
        // Labels have the token in bold.
        container.querySelectorAll(".etc-bar-label").forEach((made, i) => {
          made.append(...[this.inContext(pairs[i][0])].flat());
        });
      };
      const tokens = ranked.filter(([node]) => node < firstMemory);
      bars(tokens.slice(0, NUM_BARS), byId("bars"));
      const others = tokens.slice(NUM_BARS).reduce((sum, x) => sum + x[1], 0);
      const parts = [];
      if (rest !== null && rest + others > 0.0005) {
        parts.push(`All others together: ${format(rest + others)}`);
      }
      if (isReaders && ranked.length) {
        parts.push(`Readers shown: ${Math.min(ranked.length, NUM_BARS)} of ` +
          `${ranked.length} with a large probability.`);
      }
      if (!ranked.length) {
        parts.push(this.whyNothing());
      }
      byId("bars").append(
        ...parts.map((x) => element("p", {class: "map-details"}, x))
      );
      this.showMemories(ranked.filter(([node]) => node >= firstMemory), bars);
    }

    whyNothing() {
      if (this.direction === "readers") {
        return "Nobody reads it with a large probability here.";
      }
      return this.chosen >= firstMemory
        ? "A memory reads nobody: see who reads it."
        : "Nothing is stored for it here.";
    }

    showMemories(ranked, bars) {
      if (!data.memories.length) {
        return;
      }
      byId("memories-hint").textContent = ranked.length
        ? `Read by “${this.label(this.chosen)}”. Choose one to see who reads it.`
        : "Choose a segment or a token, and a layer of the second read, to " +
          "see which memories it reads.";
      bars(ranked.slice(0, NUM_BARS), byId("memory-bars"));
    }

    /** Chooses a node of a list, and scrolls to it. */
    goTo(node) {
      if (node >= firstMemory) {
        document.querySelector("[name=direction][value=readers]").checked =
          true;
      }
      this.choose(node);
      // The bar that had the focus is about to be replaced.
      if (node < numGlobal) {
        this.focusChip(node, {preventScroll: true});
        this.chips[node].scrollIntoView({block: "center"});
      } else if (this.partOf.has(node)) {
        const part = this.partOf.get(node);
        this.view.focus(part);
        this.view.reveal(this.view.parts[part].start);
      } else {
        byId("chosen").focus();
      }
    }
  }

  const map = new AttentionMap();
  map.show();
  window.etcMap = map;
})();
