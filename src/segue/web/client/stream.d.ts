export class SegueStream {
    /**
     * @param {(since: string | null) => WebSocket} connect
     * @param {{onFrame: (frame: Frame) => void, onState?: (state: StreamState, code?: number) => void, since?: string | null}} options
     *   `since` is the cursor to begin after; without it only new frames come.
     */
    constructor(connect: (since: string | null) => WebSocket, { onFrame, onState, since }: {
        onFrame: (frame: Frame) => void;
        onState?: (state: StreamState, code?: number) => void;
        since?: string | null;
    });
    connect: (since: string | null) => WebSocket;
    onFrame: (frame: Frame) => void;
    onState: (state: StreamState, code?: number) => void;
    /** The cursor of the last frame. */
    cursor: string | null;
    get state(): StreamState;
    /** @param {Record<string, unknown>} frame @returns {boolean} whether the socket took it */
    send(frame: Record<string, unknown>): boolean;
    close(): void;
    #private;
}
import type { Frame } from "./types.js";
import type { StreamState } from "./types.js";
