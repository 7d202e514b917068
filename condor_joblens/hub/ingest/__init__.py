"""Takes records from nodes.

- records: lines of a post -> rows of the store's tables, each checked
- gather: many posts -> few inserts; each post is answered when its rows are kept
- app: the HTTP of it: who posts, how much at a time
- kafka: the same from Kafka's topics; kafka_batches: bounded, whoever writes there; kafka_settings: its file
- places: where the queue says that jobs run; doubts: records from Kafka that it contradicts are kept apart
"""
