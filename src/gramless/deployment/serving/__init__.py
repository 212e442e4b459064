"""HTTP servers for models: predictions of saved models, and a page on which digits are drawn and recognised."""
