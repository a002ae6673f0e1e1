"""Word lists, facts, sentences and a page of English as files to read: what the studies of language models run on."""
