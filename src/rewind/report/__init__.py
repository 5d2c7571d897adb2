"""Tables, notes, figures and the HTML page that a study publishes."""
