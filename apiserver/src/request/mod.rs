//! What a request asks for: RequestInfo, options, negotiation.
