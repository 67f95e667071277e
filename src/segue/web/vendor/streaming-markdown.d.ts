export * from "streaming-markdown";
