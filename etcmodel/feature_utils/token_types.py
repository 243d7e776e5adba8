"""Token types of the multi-hop tasks. A type is a token's role in its input.

Heads and masks use token types to find the global tokens of candidates or
questions.
"""

# Long tokens.
SENTENCE = 1
TITLE = 2
QUESTION = 3
CANDIDATE = 4

# Global tokens; `GLOBAL` is for global tokens without a type of their own.
GLOBAL = 0
QUESTION_GLOBAL = 5
CANDIDATE_GLOBAL = 6
PARAGRAPH_GLOBAL = 7
CLS_GLOBAL = 8
