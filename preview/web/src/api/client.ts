/** An answer of the API that is not a success, or none at all (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.code = code;
  }
}

async function errorOf(response: Response): Promise<ApiError> {
  let code = 'internal';
  let message = `the server answered ${response.status} ${response.statusText}`.trim();
  try {
    const body: unknown = await response.json();
    if (typeof body === 'object' && body !== null) {
      if ('code' in body && typeof body.code === 'string') code = body.code;
      if ('message' in body && typeof body.message === 'string' && body.message) message = body.message;
    }
  } catch {
    // Not JSON: a proxy in between answered; the status says what is known.
  }
  return new ApiError(response.status, code, message);
}

/** Sends a request; throws an ApiError for every answer that is not a success. */
export async function send(url: string, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: 'same-origin', ...init });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === 'AbortError') throw cause;
    throw new ApiError(0, 'unavailable', 'the server cannot be reached');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** Gets a JSON document. The caller names the shape that openapi.yaml promises. */
export async function getJSON<T>(url: string, signal?: AbortSignal): Promise<T> {
  const response = await send(url, { headers: { Accept: 'application/json' }, ...(signal && { signal }) });
  return (await response.json()) as T;
}

/** The sentence to show for anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
