"""Classification of users' own documents."""
