"""HotpotQA: answers questions from paragraphs, with supporting facts."""
