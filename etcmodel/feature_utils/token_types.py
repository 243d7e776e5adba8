"""Token types of the multi-hop tasks. A type is a token's role in its input.

Heads and masks use token types to find the global tokens of candidates or
questions.
"""

# Types of long tokens.
SENTENCE = 1
TITLE = 2
QUESTION = 3
CANDIDATE = 4

# Types of global tokens. `GLOBAL` is for global tokens that need no other type.
GLOBAL = 0
QUESTION_GLOBAL = 5
CANDIDATE_GLOBAL = 6
PARAGRAPH_GLOBAL = 7
CLS_GLOBAL = 8
