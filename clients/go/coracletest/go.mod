module coracle.dev/clients/go/coracletest

go 1.20
