# The builder runs on the machine's own platform and cross-compiles. The digest is that of the index of golang:1.26.8 for all platforms:
# change both together.
FROM --platform=$BUILDPLATFORM golang:1.26.8@sha256:6c2a5538f964f1c82f97ad14988bf05de100d922d159d0e398b54c7b0ca0c6c9 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# Everything but what .dockerignore names, so that a new package needs no line here.
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /tranche ./cmd/tranche

# The binary is static and talks to the API server alone, whose certificate authority is mounted: it needs no files of a base image.
FROM scratch
COPY --from=build /tranche /tranche
USER 65532:65532
ENTRYPOINT ["/tranche"]
