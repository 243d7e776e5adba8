// Finds pieces of a document's text: paragraphs, sentences, words, phrases.
// Places are {start, end}; they count UTF-16 units, as JavaScript's strings do.
"use strict";

const etcFind = (() => {
  /**
   * Returns the paragraphs of a text: {kind, start, end}, as the model's.
   *
   * White space before a title counts only within a paragraph of text.
   */
  function findBlocks(text) {
    const blocks = [];
    let start = -1;
    let end = -1;
    const close = () => {
      if (start >= 0) {
        blocks.push({kind: "text", start, end});
      }
      start = -1;
    };
    let position = 0;
    for (const line of text.split("\n")) {
      const indent = start < 0 ? line.length - line.trimStart().length : 0;
      const marker = /^(#{1,6}[ \t]\s*)\S/.exec(line.slice(indent));
      if (!line.trim()) {
        close();
      } else if (marker) {
        close();
        blocks.push({
          kind: "title",
          start: position + indent + marker[1].length,
          end: position + line.trimEnd().length,
        });
      } else {
        if (start < 0) {
          start = position + indent;
        }
        end = position + line.trimEnd().length;
      }
      position += line.length + 1;
    }
    close();
    return blocks;
  }

  /**
   * Finds pieces that follow each other in a text: [{start, end}].
   *
   * Titles are left out. A piece that is not there is null; the next ones are
   * looked for where it would be.
   */
  function findInOrder(text, pieces) {
    const blocks = findBlocks(text).filter((x) => x.kind === "text");
    const found = [];
    let block = 0;
    let cursor = 0;
    for (const piece of pieces) {
      const sought = piece.trim();
      let place = null;
      for (let i = block; sought && i < blocks.length && !place; i++) {
        const from = Math.max(cursor, blocks[i].start);
        const paragraph = text.slice(from, blocks[i].end);
        const start = paragraph.indexOf(sought);
        if (start >= 0) {
          place = {start: from + start, end: from + start + sought.length};
          block = i;
          cursor = place.end;
        }
      }
      found.push(place);
    }
    return found;
  }

  const IS_WORD = /^[\p{L}\p{M}\p{N}]/u;
  const IS_MARK = /^\p{M}/u;
  // Characters of scripts that put no spaces between words.
  const UNSPACED =
    "[" +
    ["Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar"]
      .map((script) => `\\p{Script_Extensions=${script}}`)
      .join("") +
    "]";
  const IS_UNSPACED = new RegExp(`^${UNSPACED}`, "u");
  const HAS_UNSPACED = new RegExp(UNSPACED, "u");

  /** Whether a place of a text is between characters of one word. */
  function isInWord(text, place) {
    const [before] = Array.from(text.slice(Math.max(0, place - 2), place))
      .slice(-1);
    const [after] = Array.from(text.slice(place, place + 2));
    if (!IS_WORD.test(before || "") || !IS_WORD.test(after || "")) {
      return false;
    }
    const isUnspaced = IS_UNSPACED.test(before) || IS_UNSPACED.test(after);
    return IS_MARK.test(after) || !isUnspaced;
  }

  /**
   * Finds a phrase in a text, ignoring case: [{start, end}].
   *
   * Returns the places of whole words. Without any, and unless `isWhole`,
   * returns the places within words: some languages join particles to words.
   */
  function findOccurrences(text, phrase, isWhole) {
    const places = [];
    // Case may change the number of characters, so that places would be wrong.
    const lower = text.toLowerCase();
    const hasSameSize = lower.length === text.length;
    const sought = hasSameSize ? phrase.toLowerCase() : phrase;
    const within = hasSameSize ? lower : text;
    let start = sought ? within.indexOf(sought) : -1;
    while (start >= 0) {
      places.push({start, end: start + sought.length});
      start = within.indexOf(sought, start + 1);
    }
    const whole = places.filter(
      ({start: from, end}) => !isInWord(text, from) && !isInWord(text, end)
    );
    return whole.length || isWhole ? whole : places;
  }

  /** Finds a phrase of words, whatever the spaces and punctuation around. */
  function findPhrase(words, phrase) {
    const sought = phrase.split(/\s+/).filter(Boolean).map(normalize);
    const places = [];
    for (let i = 0; i + sought.length <= words.length; i++) {
      if (sought.every((x, j) => words[i + j].normal === x)) {
        const last = words[i + sought.length - 1];
        places.push({start: words[i].innerStart, end: last.innerEnd});
      }
    }
    return sought.length ? places : [];
  }

  function normalize(word) {
    const inner = word.replace(/^[^\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+$/gu, "");
    return (inner || word).toLowerCase().normalize("NFC");
  }

  function findWords(text) {
    return Array.from(text.matchAll(/\S+/g), (match) => {
      const [word] = match;
      const inner = /[\p{L}\p{M}\p{N}](.*[\p{L}\p{M}\p{N}])?/u.exec(word);
      const innerStart = match.index + (inner ? inner.index : 0);
      return {
        normal: normalize(word),
        innerStart,
        innerEnd: innerStart + (inner ? inner[0].length : word.length),
      };
    });
  }

  let segmenter = null;

  /** Counts the words of a piece of text without white space. */
  function countPieces(piece) {
    // Older browsers have no segmenter.
    if (!HAS_UNSPACED.test(piece) || !Intl.Segmenter) {
      return 1;
    }
    segmenter ||= new Intl.Segmenter(undefined, {granularity: "word"});
    return Array.from(segmenter.segment(piece)).filter((x) => x.isWordLike)
      .length;
  }

  /** Counts words; in scripts without spaces, as the browser divides them. */
  function countWords(text) {
    return (text.match(/\S+/g) || []).reduce(
      (number, piece) => number + countPieces(piece),
      0
    );
  }

  /** Returns the position in a text of each position in its UTF-8 bytes. */
  function fromBytes(text, places) {
    const sorted = [...new Set(places)].sort((x, y) => x - y);
    const found = new Map();
    let bytes = 0;
    let position = 0;
    let next = 0;
    for (const character of text) {
      while (next < sorted.length && sorted[next] <= bytes) {
        found.set(sorted[next++], position);
      }
      const code = character.codePointAt(0);
      bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      position += character.length;
    }
    while (next < sorted.length) {
      found.set(sorted[next++], position);
    }
    return places.map((place) => found.get(place));
  }

  /**
   * Finds the words that nq's positions count; null for tags.
   *
   * A word is found without the white space that the model leaves at it. One
   * that is not there does not move the places of those after it.
   */
  function findTokens(text, tokens) {
    const blocks = findBlocks(text).filter((x) => x.kind === "text");
    let block = 0;
    let cursor = 0;
    return tokens.map((token) => {
      const word = token.trim();
      if (!word || word === "<P>" || word === "</P>" || !blocks.length) {
        return null;
      }
      const {start: first, end: last} = blocks[block];
      cursor = Math.max(cursor, first);
      let start = text.slice(cursor, last).indexOf(word);
      if (start >= 0) {
        start += cursor;
      } else if (
        block + 1 < blocks.length &&
        text.startsWith(word, blocks[block + 1].start)
      ) {
        block += 1;
        ({start} = blocks[block]);
      } else {
        return null;
      }
      cursor = start + word.length;
      return {start, end: cursor};
    });
  }

  return {
    countWords,
    findBlocks,
    findInOrder,
    findOccurrences,
    findPhrase,
    findTokens,
    findWords,
    fromBytes,
  };
})();
