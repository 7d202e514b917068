"""`/api/v1`: records as JSON for programs, each for who may see them.

- columns: what a record has, from the metric table
- parameters: what a request may say, and what is wrong with it in a sentence
- conditions: `where` as a condition with parameters
- questions: what is asked of the store
- endpoints: the one table of what can be asked; routes are made from it
- openapi: the table as others' programs read it
- views: HTTP
"""
