"""Selection of the sentences or paragraphs of users' own documents."""
