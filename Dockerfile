# syntax=docker/dockerfile:1
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0

# Dependencies change less often than code: they get a layer of their own.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -ldflags="-s -w" -o /out/duly ./cmd/duly && \
    go build -trimpath -ldflags="-s -w" -o /out/drone ./examples/drone/cmd/drone

# scratch has neither: the certificates are for TLS to a NATS or a database
# elsewhere, /tmp is for `duly demo` and `duly dev`, /data for `duly dev --data-dir`:
# a new volume takes its owner from here.
RUN mkdir -p /out/etc/ssl/certs /out/tmp /data && chmod 1777 /out/tmp && \
    cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/

FROM scratch
COPY --from=build /out/ /
COPY --from=build --chown=65532:65532 /data/ /data/
# A number, because scratch has no /etc/passwd to look a name up in.
USER 65532:65532
EXPOSE 7310
ENTRYPOINT ["/duly"]
