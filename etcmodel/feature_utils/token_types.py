"""Token types of the multi-hop tasks: the role of a token in its input.

They tell heads and masks which global tokens stand for candidates or for the
question.
"""

# Long tokens.
SENTENCE = 1
TITLE = 2
QUESTION = 3
CANDIDATE = 4

# Global tokens: any that no other type is for, and one for each of these.
GLOBAL = 0
QUESTION_GLOBAL = 5
CANDIDATE_GLOBAL = 6
PARAGRAPH_GLOBAL = 7
CLS_GLOBAL = 8
