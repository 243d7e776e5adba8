"""HotpotQA: answer questions from several paragraphs, and name the facts."""
